// Sorted runs of an index under construction: written once, merged once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "index/bits.hpp"
#include "index/format.hpp"
#include "index/postings.hpp"

namespace ralm {

// One unnamed-by-the-user temporary file for all runs, so that their number needs no descriptors.
class SpillFile {
 public:
  explicit SpillFile(const std::filesystem::path& directory);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Appends and returns the offset; callable from several threads.
  std::uint64_t append(std::span<const std::byte> bytes);
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::mutex mutex_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

struct RunSummary {
  std::uint64_t offset = 0;
  std::uint64_t num_bytes = 0;
  std::uint64_t num_tokens = 0;
  std::vector<std::uint8_t> norms;  // one a passage of the run
};

struct InvertedRun {
  ByteBuffer bytes;  // terms ascending: length, term, number of postings, (gap, frequency)...
  std::uint64_t num_tokens = 0;
  std::vector<std::uint8_t> norms;
};

// Analyses passages and inverts them. Passage numbers start at 0 in every run.
[[nodiscard]] InvertedRun invert(std::string_view bytes, std::span<const std::size_t> ends);

// Walks the terms of one run through a buffer of fixed size.
class RunCursor {
 public:
  RunCursor(const SpillFile& file, const RunSummary& run, PassageId first_passage,
            std::size_t buffer_bytes);

  // Moves to the next term; false at the end.
  bool advance();
  [[nodiscard]] const std::string& term() const noexcept { return term_; }
  // Appends this term's postings with passage numbers of the whole index.
  void append_postings(std::vector<Posting>& out);

 private:
  void refill();
  std::uint64_t number();
  std::byte byte();

  const SpillFile& file_;
  std::uint64_t offset_;
  std::uint64_t num_left_;
  PassageId first_passage_;
  ByteBuffer buffer_;
  std::size_t buffer_bytes_;
  std::size_t at_ = 0;
  std::string term_;
};

}  // namespace ralm
