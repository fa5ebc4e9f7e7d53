#include "search/query.hpp"

#include <string>
#include <unordered_map>

#include "analysis/analyzer.hpp"

namespace ralm {

Query parse_query(std::string_view text, const IndexReader& index, const Bm25& bm25) {
  std::vector<std::string> order;
  std::unordered_map<std::string, std::uint32_t> counts;
  Query query;
  TermStream stream(text);
  bool any = false;
  for (auto term = stream.next(); !term.empty(); term = stream.next()) {
    any = true;
    const std::string key(term);
    const auto found = counts.find(key);
    if (found != counts.end()) {
      ++found->second;
    } else if (order.size() < kMaxQueryTerms) {
      counts.emplace(key, 1);
      order.push_back(key);
    } else {
      query.status = QueryStatus::kTruncatedQuery;
    }
  }
  if (!any) query.status = QueryStatus::kNoQueryTerms;
  for (const std::string& term : order) {
    if (const auto id = index.find(term)) {
      query.terms.push_back({*id, bm25.weight(index.document_frequency(*id), counts[term])});
    }
  }
  return query;
}

}  // namespace ralm
