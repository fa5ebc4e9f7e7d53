// The k best hits seen so far; score descending, then passage ascending.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "index/format.hpp"

namespace ralm {

struct Hit {
  float score;
  PassageId passage;

  [[nodiscard]] bool better_than(const Hit& other) const noexcept {
    return score != other.score ? score > other.score : passage < other.passage;
  }
};

class TopK {
 public:
  explicit TopK(std::size_t k) : k_(k) { hits_.reserve(k); }

  [[nodiscard]] bool full() const noexcept { return hits_.size() == k_; }
  // The score that a new hit must reach: 0 until k hits are known.
  [[nodiscard]] float threshold() const noexcept { return full() ? hits_.front().score : 0.0F; }

  // A hit offered twice would appear twice: callers visit every passage once.
  bool offer(const Hit& hit) {
    if (!full()) {
      hits_.push_back(hit);
      std::push_heap(hits_.begin(), hits_.end(), worst_first);
      return true;
    }
    if (!hit.better_than(hits_.front())) return false;
    std::pop_heap(hits_.begin(), hits_.end(), worst_first);
    hits_.back() = hit;
    std::push_heap(hits_.begin(), hits_.end(), worst_first);
    return true;
  }

  // Best first; the collector is empty afterwards.
  [[nodiscard]] std::vector<Hit> take_sorted() {
    std::sort(hits_.begin(), hits_.end(), worst_first);
    return std::move(hits_);
  }

 private:
  static bool worst_first(const Hit& a, const Hit& b) noexcept { return a.better_than(b); }

  std::size_t k_;
  std::vector<Hit> hits_;
};

}  // namespace ralm
