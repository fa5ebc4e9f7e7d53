#include "index/spill.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include "analysis/analyzer.hpp"
#include "errors.hpp"
#include "index/norms.hpp"

namespace ralm {

namespace {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>{}(text);
  }
};

using Vocabulary = std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>>;

struct RunPosting {
  std::uint32_t term;
  PassageId passage;
  std::uint32_t frequency;
};

// Collects the postings of passages in order.
class Inverter {
 public:
  void add(std::string_view text) {
    TermStream stream(text);
    seen_.clear();
    for (auto term = stream.next(); !term.empty(); term = stream.next()) {
      auto found = vocabulary_.find(term);
      if (found == vocabulary_.end()) {
        const auto id = static_cast<std::uint32_t>(vocabulary_.size());
        found = vocabulary_.emplace(std::string(term), id).first;
      }
      seen_.push_back(found->second);
    }
    num_tokens_ += seen_.size();
    norms_.push_back(encode_length(static_cast<std::uint32_t>(seen_.size())));
    std::sort(seen_.begin(), seen_.end());
    for (std::size_t i = 0; i < seen_.size();) {
      std::size_t end = i + 1;
      while (end < seen_.size() && seen_[end] == seen_[i]) ++end;
      const auto frequency = static_cast<std::uint32_t>(end - i);
      postings_.push_back({seen_[i], static_cast<PassageId>(norms_.size() - 1),
                           std::min(frequency, kMaxTermFrequency)});
      i = end;
    }
  }

  InvertedRun finish() {
    std::vector<const Vocabulary::value_type*> terms;
    terms.reserve(vocabulary_.size());
    for (const auto& entry : vocabulary_) terms.push_back(&entry);
    std::sort(terms.begin(), terms.end(),
              [](const auto* a, const auto* b) { return a->first < b->first; });

    std::vector<std::size_t> begins(terms.size() + 1, 0);
    for (const RunPosting& posting : postings_) ++begins[posting.term + 1];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    std::vector<Posting> by_term(postings_.size());
    std::vector<std::size_t> next(begins.begin(), begins.end() - 1);
    for (const RunPosting& posting : postings_) {
      by_term[next[posting.term]++] = {posting.passage, posting.frequency};
    }

    InvertedRun run{{}, num_tokens_, std::move(norms_)};
    for (const auto* term : terms) {
      const std::span<const Posting> postings(&by_term[begins[term->second]],
                                              begins[term->second + 1] - begins[term->second]);
      write_term(term->first, postings, run.bytes);
    }
    return run;
  }

 private:
  static void write_term(std::string_view term, std::span<const Posting> postings,
                         ByteBuffer& out) {
    append_varint(out, term.size());
    const auto* bytes = reinterpret_cast<const std::byte*>(term.data());
    out.insert(out.end(), bytes, bytes + term.size());
    append_varint(out, postings.size());
    PassageId previous = 0;
    for (const Posting& posting : postings) {
      append_varint(out, posting.passage - previous);
      append_varint(out, posting.frequency);
      previous = posting.passage;
    }
  }

  Vocabulary vocabulary_;
  std::vector<RunPosting> postings_;
  std::vector<std::uint32_t> seen_;
  std::vector<std::uint8_t> norms_;
  std::uint64_t num_tokens_ = 0;
};

}  // namespace

SpillFile::SpillFile(const std::filesystem::path& directory) {
  std::string name = (directory / "runs-XXXXXX").string();
  descriptor_ = ::mkstemp(name.data());
  if (descriptor_ < 0) {
    throw RunFault("cannot create a temporary file in " + directory.string() + ": " +
                   std::strerror(errno));
  }
  ::unlink(name.c_str());
}

SpillFile::~SpillFile() {
  ::close(descriptor_);
}

std::uint64_t SpillFile::append(std::span<const std::byte> bytes) {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t offset = size_;
  while (!bytes.empty()) {
    const auto written =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (written <= 0) {
      throw RunFault(std::string("cannot write a run of the index: ") + std::strerror(errno));
    }
    size_ += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return offset;
}

void SpillFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const auto got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got <= 0) throw RunFault("cannot read a run of the index back");
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

InvertedRun invert(std::string_view bytes, std::span<const std::size_t> ends) {
  Inverter inverter;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    inverter.add(bytes.substr(begin, end - begin));
    begin = end;
  }
  return inverter.finish();
}

RunCursor::RunCursor(const SpillFile& file, const RunSummary& run, PassageId first_passage,
                     std::size_t buffer_bytes)
    : file_(file),
      offset_(run.offset),
      num_left_(run.num_bytes),
      first_passage_(first_passage),
      buffer_bytes_(buffer_bytes) {}

void RunCursor::refill() {
  if (num_left_ == 0) throw RunFault("a run of the index ends too early");
  buffer_.resize(std::min<std::uint64_t>(buffer_bytes_, num_left_));
  file_.read(offset_, buffer_);
  offset_ += buffer_.size();
  num_left_ -= buffer_.size();
  at_ = 0;
}

std::byte RunCursor::byte() {
  if (at_ == buffer_.size()) refill();
  return buffer_[at_++];
}

std::uint64_t RunCursor::number() {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const auto part = static_cast<std::uint64_t>(byte());
    value |= (part & 0x7F) << shift;
    if (part < 0x80) return value;
  }
}

bool RunCursor::advance() {
  if (at_ == buffer_.size() && num_left_ == 0) return false;
  term_.resize(number());
  for (char& unit : term_) unit = static_cast<char>(byte());
  return true;
}

void RunCursor::append_postings(std::vector<Posting>& out) {
  PassageId passage = first_passage_;
  for (std::uint64_t left = number(); left > 0; --left) {
    passage += static_cast<PassageId>(number());
    out.push_back({passage, static_cast<std::uint32_t>(number())});
  }
}

}  // namespace ralm
