// Up to sixteen neighbouring queries in one traversal of the union of their terms.
//
// Every posting of the union is read once. Its impact, a 16-bit upper bound, is multiplied by the
// weight of the term in each query and added to one 16-bit accumulator per query and passage.
// Passages whose bound reaches the score of a query's k-th hit are scored exactly, in Lucene's
// arithmetic. So bounds only decide what is looked at; ids, order and scores are exact.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "search/kernel.hpp"
#include "search/lists.hpp"
#include "search/query.hpp"
#include "search/topk.hpp"

namespace ralm {

// Queries with more terms than this go to the exhaustive search: rounding would blunt the bounds.
inline constexpr std::size_t kMaxStridedTerms = 128;

class StridedSearch {
 public:
  StridedSearch(const IndexReader& index, const Bm25& bm25, std::size_t cache_bytes);

  // Results of at most kNumLanes queries. A query that this method cannot answer exactly (fewer
  // than k hits, or too many terms) yields nothing in `answered`.
  void search(std::span<const Query> queries, std::size_t k, std::span<const std::uint8_t> excluded,
              std::span<std::vector<Hit>> hits, std::span<bool> answered);

 private:
  struct LaneTerm {
    std::uint32_t slot;  // in terms_
    float weight;
  };
  struct Lane {
    std::vector<LaneTerm> terms;
    TopK best{1};
    double scale = 0;
    double slack = 0;
  };

  void prepare(std::span<const Query> queries, std::size_t k);
  void sort_terms();
  void load_span(std::uint32_t span);
  void search_span(std::uint32_t span, std::span<const std::uint8_t> excluded);
  void search_range(std::uint32_t range, PassageId first, std::span<const std::uint8_t> excluded);
  void choose_postponed();
  void bound_ranges(std::uint32_t num_ranges);
  void collect(std::uint32_t range, std::size_t begin, std::size_t end, LaneMask alive);
  void score_found(std::uint32_t range, PassageId first, std::size_t num_found, const Lanes& extra,
                   std::size_t num_postponed, std::span<const std::uint8_t> excluded);
  void score(std::uint32_t range, std::uint32_t local, PassageId passage, LaneMask lanes);
  [[nodiscard]] float exact(const Lane& lane, std::uint8_t norm) const noexcept;
  void update_cut(std::size_t lane) noexcept;

  const IndexReader& index_;
  const Bm25& bm25_;
  const Kernel& kernel_;
  ListCache cache_;
  std::array<Lane, kNumLanes> lanes_;
  std::size_t num_lanes_ = 0;
  Lanes cuts_{};
  std::vector<TermId> terms_;
  std::vector<LaneMask> users_;  // lanes that hold the term
  std::vector<Lanes> weights_;
  std::vector<std::shared_ptr<const DecodedList>> lists_;
  std::vector<std::uint32_t> frequencies_;  // of the terms in the passage being scored
  // Terms are ordered from rare to common; those from here on are postponed.
  std::size_t num_urgent_ = 0;
  std::vector<Lanes> range_bounds_;      // of all terms
  std::vector<Lanes> postponed_bounds_;  // of the postponed ones
  std::vector<Slice> slices_;
  std::vector<Lanes> accumulators_;
  std::vector<std::uint16_t> found_;
};

}  // namespace ralm
