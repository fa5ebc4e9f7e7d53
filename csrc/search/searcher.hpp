// Batches of queries over one index, on as many threads as the caller says.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "index/reader.hpp"
#include "search/query.hpp"
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

class Searcher {
 public:
  Searcher(const IndexReader& index, Bm25Parameters parameters)
      : index_(index), bm25_(parameters, index.header().num_nonempty, index.header().num_tokens) {}

  // Results never depend on the method, the threads or how queries are cut into batches.
  [[nodiscard]] std::vector<QueryResult> search(const SearchRequest& request) const;

 private:
  const IndexReader& index_;
  Bm25 bm25_;
};

}  // namespace ralm
