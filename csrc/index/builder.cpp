#include "index/builder.hpp"

#include <algorithm>
#include <limits>
#include <queue>

#include "analysis/utf8.hpp"
#include "errors.hpp"
#include "index/writer.hpp"

namespace ralm {

namespace {

// Inverting a run needs about this many bytes for every byte of text: the text, postings twice,
// the vocabulary and the output (5.1 measured on Wikipedia passages).
constexpr std::uint64_t kMemoryPerTextByte = 6;
constexpr std::uint64_t kMinRunBytes = std::uint64_t{1} << 16;
constexpr std::uint64_t kMaxRunBytes = std::uint64_t{1} << 26;
constexpr std::uint64_t kMaxMergeBufferBytes = std::uint64_t{1} << 18;
constexpr std::uint64_t kMinMergeBufferBytes = std::uint64_t{1} << 12;

struct MergeInput {
  RunCursor* cursor;
  std::size_t run;
};

// Orders a max-heap so that the smallest term, then the earliest run, comes first.
struct LaterTerm {
  bool operator()(const MergeInput& a, const MergeInput& b) const noexcept {
    const int order = a.cursor->term().compare(b.cursor->term());
    return order != 0 ? order > 0 : a.run > b.run;
  }
};

void merge(std::vector<RunCursor>& cursors, std::span<const std::uint8_t> norms,
           IndexWriter& writer) {
  std::priority_queue<MergeInput, std::vector<MergeInput>, LaterTerm> heap;
  for (std::size_t run = 0; run < cursors.size(); ++run) {
    if (cursors[run].advance()) heap.push({&cursors[run], run});
  }
  std::vector<Posting> postings;
  std::string term;
  while (!heap.empty()) {
    term = heap.top().cursor->term();
    postings.clear();
    while (!heap.empty() && heap.top().cursor->term() == term) {
      const MergeInput input = heap.top();
      heap.pop();
      input.cursor->append_postings(postings);
      if (input.cursor->advance()) heap.push(input);
    }
    writer.add(term, postings, norms);
  }
}

}  // namespace

IndexBuilder::IndexBuilder(BuildOptions options)
    : options_(std::move(options)),
      run_bytes_(std::clamp(options_.memory_bytes / kMemoryPerTextByte / (options_.num_threads + 1),
                            kMinRunBytes, kMaxRunBytes)),
      spill_(options_.work_directory) {
  for (unsigned i = 0; i < std::max(1U, options_.num_threads); ++i) {
    workers_.emplace_back([this] { work(); });
  }
}

IndexBuilder::~IndexBuilder() {
  stop();
}

void IndexBuilder::stop() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  workers_.clear();
}

void IndexBuilder::rethrow_failure() {
  if (failure_) std::rethrow_exception(failure_);
}

void IndexBuilder::add(std::span<const std::string_view> texts) {
  for (const std::string_view text : texts) {
    const std::size_t bad = find_invalid_utf8(text);
    if (bad != std::string_view::npos) {
      throw InputFault("passage row " + std::to_string(num_added_) + ": byte " +
                       std::to_string(bad) + " is not UTF-8");
    }
    if (num_added_ == std::numeric_limits<PassageId>::max()) {
      throw InputFault("an index holds fewer than 4,294,967,295 passages; split the input");
    }
    filling_.bytes.append(text);
    filling_.ends.push_back(filling_.bytes.size());
    ++num_added_;
    if (filling_.bytes.size() >= run_bytes_) dispatch();
  }
}

void IndexBuilder::dispatch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() || failure_; });
  rethrow_failure();
  const std::uint64_t next = filling_.index + 1;
  waiting_.push_back(std::move(filling_));
  filling_ = TextRun{next, {}, {}};
  changed_.notify_all();
}

void IndexBuilder::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !waiting_.empty() || closing_; });
    if (waiting_.empty() || failure_) return;
    TextRun run = std::move(waiting_.front());
    waiting_.pop_front();
    ++num_busy_;
    lock.unlock();
    changed_.notify_all();
    RunSummary summary;
    std::exception_ptr failure;
    try {
      InvertedRun inverted = invert(run.bytes, run.ends);
      summary = {spill_.append(inverted.bytes), inverted.bytes.size(), inverted.num_tokens,
                 std::move(inverted.norms)};
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --num_busy_;
    num_done_ += run.ends.size();
    if (failure) failure_ = failure;
    runs_[run.index] = std::move(summary);
    changed_.notify_all();
  }
}

std::uint64_t IndexBuilder::num_done() const {
  const std::scoped_lock lock(mutex_);
  return num_done_;
}

BuildStats IndexBuilder::finish(const std::filesystem::path& path) {
  if (!filling_.ends.empty()) dispatch();
  stop();
  rethrow_failure();
  std::vector<std::uint8_t> norms;
  norms.reserve(num_added_);
  std::vector<RunCursor> cursors;
  std::uint64_t num_tokens = 0;
  const std::uint64_t buffer_bytes = std::clamp(options_.memory_bytes / (runs_.size() + 1),
                                                kMinMergeBufferBytes, kMaxMergeBufferBytes);
  for (const auto& [index, run] : runs_) {
    cursors.emplace_back(spill_, run, static_cast<PassageId>(norms.size()), buffer_bytes);
    norms.insert(norms.end(), run.norms.begin(), run.norms.end());
    num_tokens += run.num_tokens;
  }
  IndexWriter writer(path);
  merge(cursors, norms, writer);
  const FileHeader header = writer.finish(norms, num_tokens);
  return {header.num_passages, header.num_terms, header.num_postings,
          header.num_tokens,   runs_.size(),     header.num_bytes};
}

}  // namespace ralm
