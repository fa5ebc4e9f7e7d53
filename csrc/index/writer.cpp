#include "index/writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "errors.hpp"

namespace ralm {

namespace {

constexpr std::size_t kFlushBytes = std::size_t{1} << 20;

template <typename T>
std::span<const std::byte> bytes_of(const T& value) noexcept {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

}  // namespace

IndexWriter::IndexWriter(const std::filesystem::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) throw RunFault(path.string() + ": " + std::strerror(errno));
  write(bytes_of(header_));
  header_.sections[kPostings].offset = size_;
}

IndexWriter::~IndexWriter() {
  ::close(descriptor_);
}

void IndexWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written <= 0) throw RunFault(path_.string() + ": " + std::strerror(errno));
    size_ += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void IndexWriter::flush_postings() {
  postings_sum_.add(pending_);
  postings_bytes_ += pending_.size();
  write(pending_);
  pending_.clear();
}

void IndexWriter::add(std::string_view term, std::span<const Posting> postings,
                      std::span<const std::uint8_t> norms) {
  if (term_bytes_.size() > std::numeric_limits<std::uint32_t>::max() - term.size()) {
    throw RunFault("the distinct terms exceed 4 GiB; split the passages");
  }
  terms_.push_back({postings_bytes_ + pending_.size(), static_cast<std::uint32_t>(postings.size()),
                    static_cast<std::uint32_t>(term_bytes_.size())});
  const auto* bytes = reinterpret_cast<const std::byte*>(term.data());
  term_bytes_.insert(term_bytes_.end(), bytes, bytes + term.size());
  encode_postings(postings, norms, pending_);
  header_.num_postings += postings.size();
  if (pending_.size() >= kFlushBytes) flush_postings();
}

void IndexWriter::write_section(SectionId id, std::span<const std::byte> bytes) {
  const std::byte zeros[8] = {};
  write(std::span(zeros).first((8 - size_ % 8) % 8));
  Checksum sum;
  sum.add(bytes);
  header_.sections[id] = {size_, bytes.size(), sum.value()};
  write(bytes);
}

FileHeader IndexWriter::finish(std::span<const std::uint8_t> norms, std::uint64_t num_tokens) {
  terms_.push_back(
      {postings_bytes_ + pending_.size(), 0, static_cast<std::uint32_t>(term_bytes_.size())});
  pending_.resize(pending_.size() + kReadPadding);
  flush_postings();
  header_.sections[kPostings].num_bytes = postings_bytes_;
  header_.sections[kPostings].checksum = postings_sum_.value();
  write_section(kNorms, std::as_bytes(norms));
  write_section(kTerms, std::as_bytes(std::span(terms_)));
  write_section(kTermBytes, term_bytes_);
  header_.num_bytes = size_;
  header_.num_passages = norms.size();
  header_.num_nonempty =
      norms.size() - static_cast<std::uint64_t>(std::count(norms.begin(), norms.end(), 0));
  header_.num_tokens = num_tokens;
  header_.num_terms = terms_.size() - 1;
  Checksum sum;
  sum.add(bytes_of(header_).first(offsetof(FileHeader, checksum)));
  header_.checksum = sum.value();
  const auto bytes = bytes_of(header_);
  if (::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()) ||
      ::fsync(descriptor_) != 0) {
    throw RunFault(path_.string() + ": " + std::strerror(errno));
  }
  return header_;
}

}  // namespace ralm
