#include "search/exhaustive.hpp"

#include <array>

namespace ralm {

namespace {

// Scores are never negative.
constexpr double kUntouched = -1.0;

}  // namespace

ExhaustiveSearch::ExhaustiveSearch(const IndexReader& index, const Bm25& bm25)
    : index_(index), bm25_(bm25) {}

std::vector<Hit> ExhaustiveSearch::search(const Query& query, std::size_t k,
                                          std::span<const std::uint8_t> excluded) {
  std::array<PassageId, kBlockSize> passages{};
  std::array<std::uint32_t, kBlockSize> frequencies{};
  sums_.resize(index_.num_passages(), kUntouched);
  touched_.clear();
  for (const QueryTerm& term : query.terms) {
    PostingReader reader = index_.postings(term.term);
    while (const std::uint32_t count = reader.next(passages, frequencies)) {
      for (std::uint32_t i = 0; i < count; ++i) {
        const PassageId passage = passages[i];
        if (sums_[passage] == kUntouched) {
          sums_[passage] = 0.0;
          touched_.push_back(passage);
        }
        sums_[passage] += bm25_.score(term.weight, frequencies[i], index_.norms()[passage]);
      }
    }
  }
  TopK best(k);
  for (const PassageId passage : touched_) {
    if (excluded.empty() || excluded[passage] == 0) {
      best.offer({static_cast<float>(sums_[passage]), passage});
    }
    sums_[passage] = kUntouched;
  }
  return best.take_sorted();
}

}  // namespace ralm
