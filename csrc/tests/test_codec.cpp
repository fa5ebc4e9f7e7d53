// Numbers, postings and text: what goes in comes out, and damage is an exception.
#include <random>
#include <string>

#include "analysis/analyzer.hpp"
#include "analysis/utf8.hpp"
#include "errors.hpp"
#include "index/bits.hpp"
#include "index/checksum.hpp"
#include "index/norms.hpp"
#include "index/postings.hpp"
#include "tests/check.hpp"

namespace ralm {
namespace {

std::vector<Posting> random_postings(std::mt19937& rng, std::size_t count, PassageId max_gap) {
  std::vector<Posting> postings;
  PassageId next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    next += static_cast<PassageId>(rng() % max_gap);
    const auto more = static_cast<std::uint32_t>(rng() % 8 == 0 ? rng() % kMaxTermFrequency : 0);
    postings.push_back({next++, 1 + more});
  }
  return postings;
}

std::vector<Posting> decode_all(PostingReader reader) {
  std::array<PassageId, kBlockSize> passages{};
  std::array<std::uint32_t, kBlockSize> frequencies{};
  std::vector<Posting> all;
  while (const std::uint32_t count = reader.next(passages, frequencies)) {
    for (std::uint32_t i = 0; i < count; ++i) all.push_back({passages[i], frequencies[i]});
  }
  return all;
}

bool same(const std::vector<Posting>& a, const std::vector<Posting>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].passage != b[i].passage || a[i].frequency != b[i].frequency) return false;
  }
  return true;
}

TEST(packed_numbers_round_trip_at_every_width) {
  std::mt19937 rng(1);
  for (unsigned bits = 0; bits <= 32; ++bits) {
    std::vector<std::uint32_t> values(kBlockSize);
    for (auto& value : values) {
      value = static_cast<std::uint32_t>(rng() & ((std::uint64_t{1} << bits) - 1));
    }
    ByteBuffer bytes;
    append_packed(bytes, values, bits);
    CHECK(bytes.size() == kBlockSize / 8 * bits);
    bytes.resize(bytes.size() + kReadPadding);
    std::vector<std::uint32_t> back(kBlockSize);
    unpack(bytes.data(), back, bits);
    CHECK(back == values);
  }
}

TEST(posting_lists_round_trip_at_every_length) {
  std::mt19937 rng(2);
  for (std::size_t count : {1, 2, 127, 128, 129, 255, 256, 1000}) {
    const std::vector<Posting> postings = random_postings(rng, count, 50);
    const std::size_t num_passages = postings.back().passage + std::size_t{1};
    const std::vector<std::uint8_t> norms(num_passages, 7);
    ByteBuffer bytes;
    encode_postings(postings, norms, bytes);
    const std::size_t size = bytes.size();
    bytes.resize(size + kReadPadding);
    const std::span<const std::byte> list(bytes.data(), size);
    const auto length = static_cast<std::uint32_t>(count);
    CHECK(same(decode_all({list, length, num_passages}), postings));

    const PassageId target = postings[count / 2].passage;
    PostingReader skipping(list, length, num_passages);
    const std::uint32_t skipped = skipping.skip_below(target);
    CHECK(skipped % kBlockSize == 0 && skipped <= count / 2);
    const std::vector<Posting> rest(postings.begin() + skipped, postings.end());
    CHECK(same(decode_all(skipping), rest));
  }
}

// Without the checksum in front: whatever the bytes are, the reader stays inside them and its
// passages inside the index.
TEST(damaged_posting_lists_never_leave_their_bytes) {
  std::mt19937 rng(3);
  const std::vector<Posting> postings = random_postings(rng, 300, 40);
  const std::size_t num_passages = postings.back().passage + std::size_t{1};
  const std::vector<std::uint8_t> norms(num_passages, 7);
  ByteBuffer good;
  encode_postings(postings, norms, good);
  int num_refused = 0;
  for (int round = 0; round < 3000; ++round) {
    ByteBuffer bad = good;
    bad[rng() % bad.size()] ^= static_cast<std::byte>(1U << rng() % 8);
    if (round % 3 == 0) bad.resize(rng() % bad.size());
    const std::size_t size = bad.size();
    bad.resize(size + kReadPadding);
    try {
      for (const Posting& posting : decode_all({{bad.data(), size}, 300, num_passages})) {
        CHECK(posting.passage < num_passages);
      }
    } catch (const InputFault&) {
      ++num_refused;
    }
  }
  CHECK(num_refused > 1000);
}

TEST(checksums_depend_on_bytes_not_on_cuts) {
  std::vector<std::byte> bytes(1000);
  std::mt19937 rng(4);
  for (auto& byte : bytes) byte = static_cast<std::byte>(rng());
  Checksum whole;
  whole.add(bytes);
  for (std::size_t cut : {0, 1, 31, 32, 33, 500, 999, 1000}) {
    Checksum parts;
    parts.add(std::span(bytes).first(cut));
    parts.add(std::span(bytes).subspan(cut));
    CHECK(parts.value() == whole.value());
  }
  Checksum longer = whole;
  longer.add(std::span(bytes).first(0));
  CHECK(longer.value() == whole.value());
  const std::byte zero{};
  longer.add({&zero, 1});
  CHECK(longer.value() != whole.value());
}

TEST(lengths_are_exact_to_forty_and_monotone) {
  std::uint32_t previous = 0;
  for (std::uint32_t length = 0; length < 5000; ++length) {
    const std::uint32_t decoded = decode_length(encode_length(length));
    CHECK(decoded <= length && decoded >= previous);
    CHECK(length > 40 || decoded == length);
    previous = decoded;
  }
}

TEST(utf8_is_checked_to_the_byte) {
  CHECK(find_invalid_utf8("a\xC3\xA9\xF0\x9F\x98\x80") == std::string_view::npos);
  CHECK(find_invalid_utf8("ab\xED\xA0\x80") == 2);  // a surrogate
  CHECK(find_invalid_utf8("\xC0\x80") == 0);        // overlong
  CHECK(find_invalid_utf8("a\xE2\x82") == 1);       // cut
  CHECK(find_invalid_utf8("\xF5\x80\x80\x80") == 0);
}

TEST(random_text_is_analysed_without_leaving_it) {
  std::mt19937 rng(5);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::size_t i = rng() % 60; i > 0; --i) {
      std::uint32_t code = rng() % (rng() % 2 == 0 ? 0x80 : 0x110000);
      if (code >= 0xD800 && code < 0xE000) code = 'e';
      append_utf8(text, code);
    }
    TermStream stream(text);
    for (auto term = stream.next(); !term.empty(); term = stream.next()) {
      CHECK(find_invalid_utf8(term) == std::string_view::npos);
    }
  }
}

}  // namespace
}  // namespace ralm
