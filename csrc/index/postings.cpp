#include "index/postings.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "errors.hpp"

namespace ralm {

namespace {

[[noreturn]] void damaged() {
  throw InputFault("a posting list of the index is damaged");
}

std::size_t packed_bytes(unsigned num_bits) noexcept {
  return kBlockSize / 8 * num_bits;
}

void encode_block(std::span<const Posting> block, std::span<const std::uint8_t> norms,
                  PassageId first_possible, ByteBuffer& out) {
  std::array<std::uint32_t, kBlockSize> gaps{};
  std::array<std::uint32_t, kBlockSize> frequencies{};
  BlockHeader header;
  header.min_norm = 255;
  std::uint32_t all_gaps = 0;
  std::uint32_t all_frequencies = 0;
  std::uint32_t max_frequency = 0;
  for (std::size_t i = 0; i < kBlockSize; ++i) {
    gaps[i] = block[i].passage - first_possible;
    first_possible = block[i].passage + 1;
    frequencies[i] = block[i].frequency - 1;
    all_gaps |= gaps[i];
    all_frequencies |= frequencies[i];
    max_frequency = std::max(max_frequency, block[i].frequency);
    header.min_norm = std::min(header.min_norm, norms[block[i].passage]);
  }
  header.last_passage = block[kBlockSize - 1].passage;
  header.gap_bits = static_cast<std::uint8_t>(std::bit_width(all_gaps));
  header.frequency_bits = static_cast<std::uint8_t>(std::bit_width(all_frequencies));
  header.max_frequency = static_cast<std::uint8_t>(std::min(max_frequency, 255U));
  const auto* bytes = reinterpret_cast<const std::byte*>(&header);
  out.insert(out.end(), bytes, bytes + sizeof header);
  append_packed(out, gaps, header.gap_bits);
  append_packed(out, frequencies, header.frequency_bits);
}

}  // namespace

void encode_postings(std::span<const Posting> postings, std::span<const std::uint8_t> norms,
                     ByteBuffer& out) {
  PassageId first_possible = 0;
  while (postings.size() >= kBlockSize) {
    encode_block(postings.first(kBlockSize), norms, first_possible, out);
    first_possible = postings[kBlockSize - 1].passage + 1;
    postings = postings.subspan(kBlockSize);
  }
  // The lowest bit of a gap says that the frequency is 1, as it is for most postings.
  for (const Posting& posting : postings) {
    const std::uint64_t gap = posting.passage - first_possible;
    append_varint(out, gap << 1 | (posting.frequency == 1 ? 1U : 0U));
    if (posting.frequency != 1) append_varint(out, posting.frequency);
    first_possible = posting.passage + 1;
  }
}

BlockHeader PostingReader::peek() const {
  if (static_cast<std::size_t>(end_ - at_) < sizeof(BlockHeader)) damaged();
  BlockHeader header;
  std::memcpy(&header, at_, sizeof header);
  const std::size_t body = packed_bytes(header.gap_bits) + packed_bytes(header.frequency_bits);
  if (header.gap_bits > 32 || header.frequency_bits > 16 ||
      static_cast<std::size_t>(end_ - at_) < sizeof header + body) {
    damaged();
  }
  return header;
}

std::uint32_t PostingReader::skip_below(PassageId target) {
  std::uint32_t num_skipped = 0;
  while (num_left_ >= kBlockSize) {
    const BlockHeader header = peek();
    if (header.last_passage >= target) break;
    at_ += sizeof header + packed_bytes(header.gap_bits) + packed_bytes(header.frequency_bits);
    next_passage_ = header.last_passage + std::uint64_t{1};
    num_left_ -= kBlockSize;
    num_skipped += kBlockSize;
  }
  return num_skipped;
}

std::uint32_t PostingReader::next(std::span<PassageId, kBlockSize> passages,
                                  std::span<std::uint32_t, kBlockSize> frequencies) {
  const std::uint32_t count = std::min(num_left_, kBlockSize);
  if (count == 0) return 0;
  if (count == kBlockSize) {
    decode_block(passages, frequencies);
  } else {
    decode_tail(passages, frequencies);
  }
  num_left_ -= count;
  return count;
}

void PostingReader::decode_block(std::span<PassageId, kBlockSize> passages,
                                 std::span<std::uint32_t, kBlockSize> frequencies) {
  const BlockHeader header = peek();
  at_ += sizeof header;
  unpack(at_, passages, header.gap_bits);
  at_ += packed_bytes(header.gap_bits);
  unpack(at_, frequencies, header.frequency_bits);
  at_ += packed_bytes(header.frequency_bits);
  std::uint64_t next = next_passage_;
  for (std::size_t i = 0; i < kBlockSize; ++i) {
    next += passages[i];
    passages[i] = static_cast<PassageId>(next++);
    ++frequencies[i];
  }
  next_passage_ = next;
  if (next > num_passages_ || passages[kBlockSize - 1] != header.last_passage) damaged();
}

void PostingReader::decode_tail(std::span<PassageId, kBlockSize> passages,
                                std::span<std::uint32_t, kBlockSize> frequencies) {
  for (std::uint32_t i = 0; i < num_left_; ++i) {
    const std::uint64_t code = read_varint(at_, end_);
    const std::uint64_t frequency = (code & 1) != 0 ? 1 : read_varint(at_, end_);
    const std::uint64_t gap = code >> 1;
    if (at_ == nullptr || gap >= num_passages_ || next_passage_ + gap >= num_passages_ ||
        frequency == 0 || frequency > kMaxTermFrequency) {
      damaged();
    }
    passages[i] = static_cast<PassageId>(next_passage_ + gap);
    frequencies[i] = static_cast<std::uint32_t>(frequency);
    next_passage_ += gap + 1;
  }
}

}  // namespace ralm
