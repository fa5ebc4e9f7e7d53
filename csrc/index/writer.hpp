// Streams an index file: postings as they come, tables at the end, the header last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "index/bits.hpp"
#include "index/checksum.hpp"
#include "index/format.hpp"
#include "index/postings.hpp"

namespace ralm {

class IndexWriter {
 public:
  explicit IndexWriter(const std::filesystem::path& path);
  ~IndexWriter();
  IndexWriter(const IndexWriter&) = delete;
  IndexWriter& operator=(const IndexWriter&) = delete;

  // Terms ascend; every term has at least one posting.
  void add(std::string_view term, std::span<const Posting> postings,
           std::span<const std::uint8_t> norms);

  // Completes and syncs the file; fills what the writer knows into the header it returns.
  FileHeader finish(std::span<const std::uint8_t> norms, std::uint64_t num_tokens);

 private:
  void write(std::span<const std::byte> bytes);
  void flush_postings();
  void write_section(SectionId id, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t size_ = 0;
  FileHeader header_;
  Checksum postings_sum_;
  std::uint64_t postings_bytes_ = 0;
  ByteBuffer pending_;
  std::vector<TermEntry> terms_;
  ByteBuffer term_bytes_;
};

}  // namespace ralm
