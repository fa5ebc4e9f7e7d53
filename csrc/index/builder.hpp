// Index construction: passages in order -> sorted runs on disk -> one merged file.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "index/spill.hpp"

namespace ralm {

struct BuildOptions {
  unsigned num_threads = 1;
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  std::filesystem::path work_directory;  // for the spill file; exists
};

struct BuildStats {
  std::uint64_t num_passages = 0;
  std::uint64_t num_terms = 0;
  std::uint64_t num_postings = 0;
  std::uint64_t num_tokens = 0;
  std::uint64_t num_runs = 0;
  std::uint64_t num_bytes = 0;
};

// Texts of consecutive passages, copied once so that the caller may drop its own.
struct TextRun {
  std::uint64_t index = 0;
  std::string bytes;
  std::vector<std::size_t> ends;
};

// Feed passages with add() in row order, then finish(). One thread calls; workers analyse.
class IndexBuilder {
 public:
  explicit IndexBuilder(BuildOptions options);
  ~IndexBuilder();
  IndexBuilder(const IndexBuilder&) = delete;
  IndexBuilder& operator=(const IndexBuilder&) = delete;

  // Takes the next passages. Throws InputFault naming the row on text that is not UTF-8.
  void add(std::span<const std::string_view> texts);

  // Passages analysed so far.
  [[nodiscard]] std::uint64_t num_done() const;

  // Merges all runs into `path`. The file's bytes depend on the texts alone, not on threads or
  // memory. The builder is spent afterwards.
  BuildStats finish(const std::filesystem::path& path);

 private:
  void work();
  void dispatch();
  void stop() noexcept;
  void rethrow_failure();

  BuildOptions options_;
  std::uint64_t run_bytes_;
  TextRun filling_;
  std::uint64_t num_added_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TextRun> waiting_;
  unsigned num_busy_ = 0;
  bool closing_ = false;
  std::exception_ptr failure_;
  std::uint64_t num_done_ = 0;
  std::map<std::uint64_t, RunSummary> runs_;
  SpillFile spill_;
  std::vector<std::jthread> workers_;
};

}  // namespace ralm
