#include "search/strided.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <unordered_map>

namespace ralm {

namespace {

// A query's weights are scaled so that their sum, more than any passage can score, becomes this.
constexpr double kFullScale = 65000.0;
constexpr Lanes kNothing{};

// Common terms are postponed while all of them together bound less than this part of every query's
// cut. 0.35 to 0.5 took 15 % less time than none; 0.65 and more let too many passages through
// (benchmarks/retrieval/ideas.md, 7).
constexpr double kPostponedShare = 0.4;
// By then cuts are near their final values, and what is postponed is chosen again.
constexpr std::uint32_t kRangesBeforeSecondChoice = 16;
// Look-ups in a range beyond which adding its postponed lists is cheaper.
constexpr std::size_t kMaxLookups = 400;

}  // namespace

StridedSearch::StridedSearch(const IndexReader& index, const Bm25& bm25, std::size_t cache_bytes)
    : index_(index),
      bm25_(bm25),
      kernel_(best_kernel()),
      cache_(index, bm25, cache_bytes),
      accumulators_(kRangeSize),
      found_(kRangeSize + 1) {}

void StridedSearch::search(std::span<const Query> queries, std::size_t k,
                           std::span<const std::uint8_t> excluded, std::span<std::vector<Hit>> hits,
                           std::span<bool> answered) {
  prepare(queries, k);
  const auto num_spans =
      static_cast<std::uint32_t>((index_.num_passages() + kSpanSize - 1) / kSpanSize);
  for (std::uint32_t span = 0; span < num_spans; ++span) {
    load_span(span);
    search_span(span, excluded);
  }
  for (std::size_t i = 0; i < num_lanes_; ++i) {
    Lane& lane = lanes_[i];
    const double top = lane.best.threshold() * lane.scale;
    answered[i] = lane.best.full() && top > lane.slack + 1;
    hits[i] = lane.best.take_sorted();
  }
}

void StridedSearch::prepare(std::span<const Query> queries, std::size_t k) {
  terms_.clear();
  users_.clear();
  weights_.clear();
  num_lanes_ = queries.size();
  std::unordered_map<TermId, std::uint32_t> slots;
  for (std::size_t i = 0; i < kNumLanes; ++i) {
    Lane& lane = lanes_[i];
    lane.terms.clear();
    lane.best = TopK(k);
    lane.scale = 0;
    cuts_.of[i] = 0xFFFF;
    if (i >= num_lanes_ || queries[i].terms.empty()) continue;
    double total = 0;
    for (const QueryTerm& term : queries[i].terms) total += term.weight;
    lane.scale = kFullScale / total;
    // A term loses less than 1 by rounding down, and less than 1 by the clipped saturation.
    lane.slack = 2.0 * static_cast<double>(queries[i].terms.size()) + 3.0;
    for (const QueryTerm& term : queries[i].terms) {
      const auto [found, fresh] =
          slots.try_emplace(term.term, static_cast<std::uint32_t>(terms_.size()));
      if (fresh) {
        terms_.push_back(term.term);
        users_.push_back(0);
        weights_.push_back({});
      }
      users_[found->second] |= LaneMask{1} << i;
      weights_[found->second].of[i] =
          static_cast<std::uint16_t>(std::min(std::ceil(term.weight * lane.scale), 65535.0));
      lane.terms.push_back({found->second, term.weight});
    }
    update_cut(i);
  }
  frequencies_.resize(terms_.size());
  sort_terms();
}

void StridedSearch::sort_terms() {
  std::vector<std::uint32_t> order(terms_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return index_.document_frequency(terms_[a]) < index_.document_frequency(terms_[b]);
  });
  std::vector<std::uint32_t> rank(order.size());
  std::vector<TermId> terms;
  std::vector<LaneMask> users;
  std::vector<Lanes> weights;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    rank[order[i]] = i;
    terms.push_back(terms_[order[i]]);
    users.push_back(users_[order[i]]);
    weights.push_back(weights_[order[i]]);
  }
  terms_ = std::move(terms);
  users_ = std::move(users);
  weights_ = std::move(weights);
  for (Lane& lane : lanes_) {
    for (LaneTerm& term : lane.terms) term.slot = rank[term.slot];
  }
}

void StridedSearch::update_cut(std::size_t i) noexcept {
  const Lane& lane = lanes_[i];
  const double reach = lane.best.threshold() * lane.scale - lane.slack;
  cuts_.of[i] = static_cast<std::uint16_t>(std::clamp(std::floor(reach), 1.0, 65535.0));
}

void StridedSearch::load_span(std::uint32_t span) {
  lists_.clear();
  for (const TermId term : terms_) {
    lists_.push_back(cache_.get(term, span));
  }
}

void StridedSearch::bound_ranges(std::uint32_t num_ranges) {
  range_bounds_.assign(num_ranges, Lanes{});
  postponed_bounds_.assign(num_ranges, Lanes{});
  for (std::size_t slot = 0; slot < terms_.size(); ++slot) {
    const std::uint16_t* maxima = lists_[slot]->maxima.data();
    kernel_.add_bounds(maxima, num_ranges, weights_[slot], range_bounds_.data());
    if (slot >= num_urgent_) {
      kernel_.add_bounds(maxima, num_ranges, weights_[slot], postponed_bounds_.data());
    }
  }
}

void StridedSearch::choose_postponed() {
  num_urgent_ = terms_.size();
  Lanes total{};
  Lanes limits{};
  for (std::size_t i = 0; i < kNumLanes; ++i) {
    limits.of[i] = static_cast<std::uint16_t>(cuts_.of[i] * kPostponedShare);
  }
  while (num_urgent_ > 0) {
    kernel_.add_bounds(&lists_[num_urgent_ - 1]->maximum, 1, weights_[num_urgent_ - 1], &total);
    if (kernel_.reached(total, kNothing, limits) != 0) break;
    --num_urgent_;
  }
}

void StridedSearch::search_span(std::uint32_t span, std::span<const std::uint8_t> excluded) {
  const std::uint64_t first = std::uint64_t{span} * kSpanSize;
  const std::uint64_t left = std::min<std::uint64_t>(index_.num_passages() - first, kSpanSize);
  const auto num_ranges = static_cast<std::uint32_t>((left + kRangeSize - 1) / kRangeSize);
  for (std::uint32_t range = 0; range < num_ranges; ++range) {
    if (range == 0 || range == kRangesBeforeSecondChoice) {
      choose_postponed();
      bound_ranges(num_ranges);
    }
    search_range(range, static_cast<PassageId>(first + std::uint64_t{range} * kRangeSize),
                 excluded);
  }
}

void StridedSearch::collect(std::uint32_t range, std::size_t begin, std::size_t end,
                            LaneMask alive) {
  slices_.clear();
  for (std::size_t slot = begin; slot < end; ++slot) {
    const DecodedList& list = *lists_[slot];
    const std::uint32_t from = list.begins[range];
    const std::uint32_t to = list.begins[range + 1];
    if (from == to || (users_[slot] & alive) == 0) continue;
    slices_.push_back({list.impacts.data() + from, list.impacts.data() + to, &weights_[slot]});
  }
}

void StridedSearch::search_range(std::uint32_t range, PassageId first,
                                 std::span<const std::uint8_t> excluded) {
  const LaneMask alive = kernel_.reached(range_bounds_[range], kNothing, cuts_);
  if (alive == 0) return;
  // A lane that the postponed terms alone could satisfy needs them at once.
  const Lanes& postponed = postponed_bounds_[range];
  const bool postpone =
      num_urgent_ < terms_.size() && (kernel_.reached(postponed, kNothing, cuts_) & alive) == 0;
  const std::size_t num_urgent = postpone ? num_urgent_ : terms_.size();
  const Lanes& extra = postpone ? postponed : kNothing;
  Lanes highest{};
  collect(range, 0, num_urgent, alive);
  kernel_.accumulate(slices_.data(), slices_.size(), accumulators_.data(), highest);
  if (kernel_.reached(highest, extra, cuts_) != 0) {
    std::size_t num_found =
        kernel_.scan(accumulators_.data(), kRangeSize, extra, cuts_, found_.data());
    std::size_t num_postponed = terms_.size() - num_urgent;
    if (num_found * num_postponed > kMaxLookups) {
      collect(range, num_urgent, terms_.size(), alive);
      kernel_.accumulate(slices_.data(), slices_.size(), accumulators_.data(), highest);
      num_found = kernel_.scan(accumulators_.data(), kRangeSize, kNothing, cuts_, found_.data());
      num_postponed = 0;
    }
    score_found(range, first, num_found, num_postponed != 0 ? extra : kNothing, num_postponed,
                excluded);
  }
  std::fill(accumulators_.begin(), accumulators_.end(), Lanes{});
}

void StridedSearch::score_found(std::uint32_t range, PassageId first, std::size_t num_found,
                                const Lanes& extra, std::size_t num_postponed,
                                std::span<const std::uint8_t> excluded) {
  for (std::size_t i = 0; i < num_found; ++i) {
    const std::uint16_t local = found_[i];
    const PassageId passage = first + local;
    if (!excluded.empty() && excluded[passage] != 0) continue;
    Lanes& sums = accumulators_[local];
    const LaneMask hopeful = kernel_.reached(sums, extra, cuts_);
    if (hopeful == 0) continue;
    for (std::size_t slot = terms_.size() - num_postponed; slot < terms_.size(); ++slot) {
      if ((users_[slot] & hopeful) == 0) continue;
      const std::uint32_t at = lists_[slot]->find(range, local);
      if (at != DecodedList::kAbsent) {
        kernel_.add_bounds(&lists_[slot]->impacts[at].saturation, 1, weights_[slot], &sums);
      }
    }
    const LaneMask lanes = kernel_.reached(sums, kNothing, cuts_);
    if (lanes != 0) score(range, local, passage, lanes);
  }
}

void StridedSearch::score(std::uint32_t range, std::uint32_t local, PassageId passage,
                          LaneMask lanes) {
  for (std::size_t slot = 0; slot < terms_.size(); ++slot) {
    if ((users_[slot] & lanes) != 0) {
      const std::uint32_t at = lists_[slot]->find(range, local);
      frequencies_[slot] = at == DecodedList::kAbsent ? 0 : lists_[slot]->frequencies[at];
    }
  }
  for (LaneMask left = lanes; left != 0; left &= left - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(left));
    const float sum = exact(lanes_[i], index_.norms()[passage]);
    if (lanes_[i].best.offer({sum, passage})) update_cut(i);
  }
}

float StridedSearch::exact(const Lane& lane, std::uint8_t norm) const noexcept {
  double sum = 0;
  for (const LaneTerm& term : lane.terms) {
    const std::uint32_t frequency = frequencies_[term.slot];
    if (frequency != 0) sum += bm25_.score(term.weight, frequency, norm);
  }
  return static_cast<float>(sum);
}

}  // namespace ralm
