// Brings queries that share terms next to each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "search/query.hpp"

namespace ralm {

// A permutation of 0..queries.size()-1 in which each query is followed by the unused one that
// shares most terms with it. Queries in stream order stay in stream order; shuffled ones find
// their neighbours again.
[[nodiscard]] std::vector<std::uint32_t> order_by_overlap(std::span<const Query> queries);

}  // namespace ralm
