// A mapped, checked index file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "index/format.hpp"
#include "index/postings.hpp"

namespace ralm {

// A read-only shared mapping: every process on a node uses the same pages.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

class IndexReader {
 public:
  // Checks magic, byte order, version, size, every checksum and the order of the term table.
  // Throws InputFault naming the file and both sides of a mismatch.
  explicit IndexReader(const std::filesystem::path& path);

  [[nodiscard]] const FileHeader& header() const noexcept { return header_; }
  [[nodiscard]] std::uint64_t num_passages() const noexcept { return header_.num_passages; }
  [[nodiscard]] std::span<const std::uint8_t> norms() const noexcept { return norms_; }

  [[nodiscard]] std::optional<TermId> find(std::string_view term) const noexcept;
  [[nodiscard]] std::string_view term(TermId id) const noexcept;
  [[nodiscard]] std::uint32_t document_frequency(TermId id) const noexcept {
    return terms_[id].num_postings;
  }
  [[nodiscard]] PostingReader postings(TermId id) const noexcept;

  // Decodes every list and compares counts with the header. Throws InputFault on a difference.
  void verify() const;

 private:
  [[nodiscard]] std::span<const std::byte> section(SectionId id) const noexcept;
  void check_header(const std::filesystem::path& path) const;
  void check_terms(const std::filesystem::path& path) const;

  MappedFile file_;
  FileHeader header_;
  std::span<const std::uint8_t> norms_;
  std::span<const TermEntry> terms_;
  std::string_view term_bytes_;
};

}  // namespace ralm
