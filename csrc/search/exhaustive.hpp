// Scores every posting of every query term: the specification of the fast search.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "index/reader.hpp"
#include "search/query.hpp"
#include "search/topk.hpp"

namespace ralm {

// Reusable between queries; allocates its sums over all passages when first used.
class ExhaustiveSearch {
 public:
  ExhaustiveSearch(const IndexReader& index, const Bm25& bm25);

  // `excluded` has one byte a passage (1 = never return it) or is empty.
  [[nodiscard]] std::vector<Hit> search(const Query& query, std::size_t k,
                                        std::span<const std::uint8_t> excluded);

 private:
  const IndexReader& index_;
  const Bm25& bm25_;
  std::vector<double> sums_;
  std::vector<PassageId> touched_;
};

}  // namespace ralm
