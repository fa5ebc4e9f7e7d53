// Query text to weighted terms.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "index/reader.hpp"
#include "search/bm25.hpp"

namespace ralm {

// Lucene refuses more clauses than this; we keep the first ones and say so.
inline constexpr std::size_t kMaxQueryTerms = 1024;

enum class QueryStatus : std::int8_t { kOk = 0, kNoQueryTerms = 1, kTruncatedQuery = 2 };

struct QueryTerm {
  TermId term;
  float weight;
};

// Terms in order of first appearance, once each; that order is the order of summation.
struct Query {
  std::vector<QueryTerm> terms;
  QueryStatus status = QueryStatus::kOk;
};

// `text` is valid UTF-8. Terms that the index does not hold are left out.
[[nodiscard]] Query parse_query(std::string_view text, const IndexReader& index, const Bm25& bm25);

}  // namespace ralm
