// Batches of queries over one index, on as many threads as the caller says.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "index/reader.hpp"
#include "search/exhaustive.hpp"
#include "search/query.hpp"
#include "search/strided.hpp"
#include "search/topk.hpp"

namespace ralm {

enum class SearchMethod { kStrided, kExhaustive };

struct SearchRequest {
  std::span<const std::string_view> queries;  // valid UTF-8, in stream order
  std::size_t k = 1;
  std::span<const std::uint8_t> excluded;  // one byte a passage, or empty
  unsigned num_threads = 1;
  SearchMethod method = SearchMethod::kStrided;
};

struct QueryResult {
  std::vector<Hit> hits;
  QueryStatus status = QueryStatus::kOk;
};

// Callable from several threads at once.
class Searcher {
 public:
  // The index outlives the searcher.
  Searcher(const IndexReader& index, Bm25Parameters parameters);

  // Results never depend on the method, the threads or how queries are cut into batches.
  [[nodiscard]] std::vector<QueryResult> search(const SearchRequest& request) const;

 private:
  // What one thread needs; kept between calls for the sake of its decoded lists.
  struct Worker {
    StridedSearch strided;
    ExhaustiveSearch exhaustive;
  };
  class Lease;

  void search_group(Worker& worker, std::span<const Query> queries,
                    std::span<const std::uint32_t> group, const SearchRequest& request,
                    std::vector<QueryResult>& results) const;

  const IndexReader& index_;
  Bm25 bm25_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Worker>> idle_;
};

}  // namespace ralm
