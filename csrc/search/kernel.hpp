// The inner loops of the strided search, one set per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "search/lists.hpp"

namespace ralm {

// Queries that share one traversal: one 16-bit accumulator each.
inline constexpr std::size_t kNumLanes = 16;

// One number a query; 32 bytes, aligned for the widest loads.
struct alignas(32) Lanes {
  std::uint16_t of[kNumLanes];
};

static_assert(sizeof(Lanes) == kOffsetScale);

using LaneMask = std::uint32_t;  // bit i = lane i

// Part of a decoded list that lies in one range, with the weight of its term in every query.
struct Slice {
  const Impact* begin;
  const Impact* end;
  const Lanes* weights;
};

// Accumulators that one step of scan() looks at; their number is a multiple of it.
inline constexpr std::size_t kScanStep = 8;
static_assert(kRangeSize % kScanStep == 0);

struct Kernel {
  const char* name;

  // totals[r] += maxima[r] * weights, saturating: bounds what a passage of a range can score.
  void (*add_bounds)(const std::uint16_t* maxima, std::size_t num_ranges, const Lanes& weights,
                     Lanes* totals);

  // Adds every impact to the accumulators of its passage. `highest` grows to the largest sums.
  void (*accumulate)(const Slice* slices, std::size_t num_slices, Lanes* accumulators,
                     Lanes& highest);

  // Lanes where values + extra reach their cut.
  LaneMask (*reached)(const Lanes& values, const Lanes& extra, const Lanes& cuts);

  // Writes the numbers of all accumulators with a lane that reaches its cut with `extra` added;
  // returns how many. `out` has room for one more.
  std::size_t (*scan)(const Lanes* accumulators, std::size_t num_accumulators, const Lanes& extra,
                      const Lanes& cuts, std::uint16_t* out);
};

// The fastest set that this processor runs.
[[nodiscard]] const Kernel& best_kernel() noexcept;

[[nodiscard]] const Kernel& generic_kernel() noexcept;
#if defined(__x86_64__)
[[nodiscard]] const Kernel& avx2_kernel() noexcept;
#endif

}  // namespace ralm
