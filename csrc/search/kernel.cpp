#include "search/kernel.hpp"

#include <algorithm>

namespace ralm {

namespace {

std::uint16_t scaled(std::uint16_t saturation, std::uint16_t weight) noexcept {
  return static_cast<std::uint16_t>(std::uint32_t{saturation} * weight >> 16);
}

std::uint16_t saturating_sum(std::uint16_t a, std::uint16_t b) noexcept {
  return static_cast<std::uint16_t>(std::min(std::uint32_t{a} + b, 0xFFFFU));
}

void add_bound(std::uint16_t maximum, const Lanes& weights, Lanes& total) {
  for (std::size_t i = 0; i < kNumLanes; ++i) {
    total.of[i] = saturating_sum(total.of[i], scaled(maximum, weights.of[i]));
  }
}

void add_bounds(const std::uint16_t* maxima, std::size_t num_ranges, const Lanes& weights,
                Lanes* totals) {
  for (std::size_t i = 0; i < num_ranges; ++i) add_bound(maxima[i], weights, totals[i]);
}

void accumulate(const Slice* slices, std::size_t num_slices, Lanes* accumulators, Lanes& highest) {
  for (const Slice* slice = slices; slice != slices + num_slices; ++slice) {
    for (const Impact* impact = slice->begin; impact != slice->end; ++impact) {
      Lanes& sums = accumulators[impact->offset / kOffsetScale];
      add_bound(impact->saturation, *slice->weights, sums);
      for (std::size_t i = 0; i < kNumLanes; ++i) {
        highest.of[i] = std::max(highest.of[i], sums.of[i]);
      }
    }
  }
}

LaneMask reached(const Lanes& values, const Lanes& extra, const Lanes& cuts) {
  LaneMask mask = 0;
  for (std::size_t i = 0; i < kNumLanes; ++i) {
    const std::uint16_t value = saturating_sum(values.of[i], extra.of[i]);
    mask |= static_cast<LaneMask>(value >= cuts.of[i]) << i;
  }
  return mask;
}

std::size_t scan(const Lanes* accumulators, std::size_t num_accumulators, const Lanes& extra,
                 const Lanes& cuts, std::uint16_t* out) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < num_accumulators; ++i) {
    out[found] = static_cast<std::uint16_t>(i);
    found += reached(accumulators[i], extra, cuts) != 0;
  }
  return found;
}

constexpr Kernel kGeneric = {"generic", add_bounds, accumulate, reached, scan};

}  // namespace

const Kernel& generic_kernel() noexcept {
  return kGeneric;
}

const Kernel& best_kernel() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return avx2_kernel();
#endif
  return kGeneric;
}

}  // namespace ralm
