#include "index/reader.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "errors.hpp"
#include "index/checksum.hpp"

namespace ralm {

namespace {

[[noreturn]] void reject(const std::filesystem::path& path, const std::string& why) {
  throw InputFault(path.string() + ": " + why + "; build the index again");
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw InputFault(path.string() + ": " + std::strerror(errno));
  struct stat status{};
  const bool known = ::fstat(descriptor, &status) == 0;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = MAP_FAILED;
  if (known && size > 0) {
    address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  }
  ::close(descriptor);
  if (address == MAP_FAILED) reject(path, "the file is empty or cannot be mapped");
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

IndexReader::IndexReader(const std::filesystem::path& path) : file_(path), header_{} {
  if (file_.bytes().size() < sizeof header_) reject(path, "the file is shorter than its header");
  std::memcpy(&header_, file_.bytes().data(), sizeof header_);
  check_header(path);
  const auto norms = section(kNorms);
  norms_ = {reinterpret_cast<const std::uint8_t*>(norms.data()), norms.size()};
  const auto terms = section(kTerms);
  terms_ = {reinterpret_cast<const TermEntry*>(terms.data()), terms.size() / sizeof(TermEntry)};
  const auto bytes = section(kTermBytes);
  term_bytes_ = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  check_terms(path);
}

std::span<const std::byte> IndexReader::section(SectionId id) const noexcept {
  return file_.bytes().subspan(header_.sections[id].offset, header_.sections[id].num_bytes);
}

void IndexReader::check_header(const std::filesystem::path& path) const {
  if (header_.magic != kMagic) reject(path, "this is no native index");
  if (header_.endian_tag != kEndianTag) reject(path, "the byte order is not little-endian");
  if (header_.version != kFormatVersion) {
    reject(path, "format version " + std::to_string(header_.version) +
                     ", but this program reads version " + std::to_string(kFormatVersion));
  }
  Checksum sum;
  sum.add(file_.bytes().first(offsetof(FileHeader, checksum)));
  if (sum.value() != header_.checksum) reject(path, "the header is damaged");
  const std::uint64_t size = file_.bytes().size();
  if (header_.num_bytes != size) {
    reject(path, "the header says " + std::to_string(header_.num_bytes) + " bytes, the file has " +
                     std::to_string(size));
  }
  for (std::size_t id = 0; id < kNumSections; ++id) {
    const Section& part = header_.sections[id];
    if (part.offset > size || part.num_bytes > size - part.offset || part.offset % 8 != 0) {
      reject(path, "a section lies outside the file");
    }
    Checksum content;
    content.add(section(static_cast<SectionId>(id)));
    if (content.value() != part.checksum) {
      reject(path, "the checksum of section " + std::to_string(id) + " differs");
    }
  }
}

void IndexReader::check_terms(const std::filesystem::path& path) const {
  const std::uint64_t postings_end = section(kPostings).size();
  bool sound = norms_.size() == header_.num_passages && terms_.size() == header_.num_terms + 1 &&
               postings_end >= kReadPadding && header_.num_passages < std::uint64_t{1} << 32;
  for (std::size_t i = 0; sound && i + 1 < terms_.size(); ++i) {
    sound = terms_[i].postings_offset <= terms_[i + 1].postings_offset &&
            terms_[i].bytes_offset < terms_[i + 1].bytes_offset &&
            terms_[i].num_postings <= header_.num_passages;
  }
  if (!sound || terms_.back().postings_offset > postings_end - kReadPadding ||
      terms_.back().bytes_offset > term_bytes_.size()) {
    reject(path, "the term table is damaged");
  }
}

std::string_view IndexReader::term(TermId id) const noexcept {
  const std::uint32_t begin = terms_[id].bytes_offset;
  return term_bytes_.substr(begin, terms_[id + 1].bytes_offset - begin);
}

std::optional<TermId> IndexReader::find(std::string_view wanted) const noexcept {
  TermId low = 0;
  auto high = static_cast<TermId>(header_.num_terms);
  while (low < high) {
    const TermId middle = low + (high - low) / 2;
    if (term(middle) < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low < header_.num_terms && term(low) == wanted) return low;
  return std::nullopt;
}

PostingReader IndexReader::postings(TermId id) const noexcept {
  const std::uint64_t begin = terms_[id].postings_offset;
  const std::uint64_t end = terms_[id + 1].postings_offset;
  return {section(kPostings).subspan(begin, end - begin), terms_[id].num_postings,
          header_.num_passages};
}

void IndexReader::verify() const {
  std::array<PassageId, kBlockSize> passages{};
  std::array<std::uint32_t, kBlockSize> frequencies{};
  std::uint64_t num_postings = 0;
  std::uint64_t num_tokens = 0;
  for (TermId id = 0; id < header_.num_terms; ++id) {
    if (id > 0 && !(term(id - 1) < term(id))) {
      throw InputFault("the terms of the index are not in order; build it again");
    }
    PostingReader reader = postings(id);
    while (const std::uint32_t count = reader.next(passages, frequencies)) {
      num_postings += count;
      for (std::uint32_t i = 0; i < count; ++i) num_tokens += frequencies[i];
    }
  }
  if (num_postings != header_.num_postings || num_tokens > header_.num_tokens) {
    throw InputFault("the index holds " + std::to_string(num_postings) + " postings of " +
                     std::to_string(num_tokens) + " tokens, its header says " +
                     std::to_string(header_.num_postings) + " of " +
                     std::to_string(header_.num_tokens) + "; build it again");
  }
}

}  // namespace ralm
