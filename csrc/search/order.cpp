#include "search/order.hpp"

#include <unordered_map>

namespace ralm {

namespace {

// Terms in more queries than this say little about neighbourhood and would make the walk quadratic.
// A term lives for 8 strides of 4 tokens in a query of 32.
constexpr std::size_t kMaxQueriesPerTerm = 64;

}  // namespace

std::vector<std::uint32_t> order_by_overlap(std::span<const Query> queries) {
  const auto num_queries = static_cast<std::uint32_t>(queries.size());
  std::unordered_map<TermId, std::vector<std::uint32_t>> users;
  for (std::uint32_t i = 0; i < num_queries; ++i) {
    for (const QueryTerm& term : queries[i].terms) users[term.term].push_back(i);
  }
  std::vector<std::uint32_t> order;
  std::vector<bool> used(num_queries, false);
  std::vector<std::uint32_t> shared(num_queries, 0);
  std::vector<std::uint32_t> touched;
  std::uint32_t first_unused = 0;
  std::uint32_t current = 0;
  while (order.size() < num_queries) {
    order.push_back(current);
    used[current] = true;
    touched.clear();
    for (const QueryTerm& term : queries[current].terms) {
      const std::vector<std::uint32_t>& others = users[term.term];
      if (others.size() > kMaxQueriesPerTerm) continue;
      for (const std::uint32_t other : others) {
        if (!used[other] && shared[other]++ == 0) touched.push_back(other);
      }
    }
    while (first_unused < num_queries && used[first_unused]) ++first_unused;
    current = first_unused;
    std::uint32_t most = 0;
    for (const std::uint32_t other : touched) {
      if (shared[other] > most || (shared[other] == most && other < current)) {
        most = shared[other];
        current = other;
      }
      shared[other] = 0;
    }
  }
  return order;
}

}  // namespace ralm
