#include "search/searcher.hpp"

#include "parallel.hpp"
#include "search/exhaustive.hpp"

namespace ralm {

std::vector<QueryResult> Searcher::search(const SearchRequest& request) const {
  std::vector<QueryResult> results(request.queries.size());
  parallel_for(request.queries.size(), request.num_threads, [&] {
    return [&, search = ExhaustiveSearch(index_, bm25_)](std::size_t i) mutable {
      const Query query = parse_query(request.queries[i], index_, bm25_);
      results[i] = {search.search(query, request.k, request.excluded), query.status};
    };
  });
  return results;
}

}  // namespace ralm
