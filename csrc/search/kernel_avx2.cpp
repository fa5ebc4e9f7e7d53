// AVX2: sixteen 16-bit lanes are one register.
#if defined(__x86_64__)

#include <immintrin.h>

#include "search/kernel.hpp"

#define RALM_AVX2 __attribute__((target("avx2")))

namespace ralm {

namespace {

RALM_AVX2 __m256i load(const Lanes& lanes) noexcept {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(&lanes));
}

RALM_AVX2 void store(Lanes& lanes, __m256i value) noexcept {
  _mm256_store_si256(reinterpret_cast<__m256i*>(&lanes), value);
}

RALM_AVX2 __m256i scaled(std::uint16_t saturation, __m256i weights) noexcept {
  return _mm256_mulhi_epu16(_mm256_set1_epi16(static_cast<short>(saturation)), weights);
}

// All ones in 16-bit lanes where value >= cut, unsigned.
RALM_AVX2 __m256i at_least(__m256i value, __m256i cut) noexcept {
  return _mm256_cmpeq_epi16(_mm256_subs_epu16(cut, value), _mm256_setzero_si256());
}

RALM_AVX2 void add_bounds(const std::uint16_t* maxima, std::size_t num_ranges, const Lanes& weights,
                          Lanes* totals) {
  const __m256i weight = load(weights);
  for (std::size_t i = 0; i < num_ranges; ++i) {
    store(totals[i], _mm256_adds_epu16(load(totals[i]), scaled(maxima[i], weight)));
  }
}

RALM_AVX2 void accumulate(const Slice* slices, std::size_t num_slices, Lanes* accumulators,
                          Lanes& highest) {
  auto* base = reinterpret_cast<char*>(accumulators);
  __m256i top = load(highest);
  for (const Slice* slice = slices; slice != slices + num_slices; ++slice) {
    const __m256i weights = load(*slice->weights);
    for (const Impact* impact = slice->begin; impact != slice->end; ++impact) {
      auto* at = reinterpret_cast<__m256i*>(base + impact->offset);
      const __m256i sum =
          _mm256_adds_epu16(_mm256_load_si256(at), scaled(impact->saturation, weights));
      _mm256_store_si256(at, sum);
      top = _mm256_max_epu16(top, sum);
    }
  }
  store(highest, top);
}

RALM_AVX2 LaneMask reached(const Lanes& values, const Lanes& extra, const Lanes& cuts) {
  const __m256i hit = at_least(_mm256_adds_epu16(load(values), load(extra)), load(cuts));
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(hit), _mm256_extracti128_si256(hit, 1));
  return static_cast<LaneMask>(_mm_movemask_epi8(bytes));
}

RALM_AVX2 std::size_t scan(const Lanes* accumulators, std::size_t num_accumulators,
                           const Lanes& extra, const Lanes& cuts, std::uint16_t* out) {
  const __m256i add = load(extra);
  const __m256i cut = load(cuts);
  std::size_t found = 0;
  // Eight at a time share one test: a maximum costs one instruction, a test five.
  for (std::size_t first = 0; first < num_accumulators; first += kScanStep) {
    const Lanes* group = accumulators + first;
    __m256i top = load(group[0]);
    for (std::size_t i = 1; i < kScanStep; ++i) top = _mm256_max_epu16(top, load(group[i]));
    if (_mm256_movemask_epi8(at_least(_mm256_adds_epu16(top, add), cut)) == 0) continue;
    for (std::size_t i = 0; i < kScanStep; ++i) {
      out[found] = static_cast<std::uint16_t>(first + i);
      const __m256i value = _mm256_adds_epu16(load(group[i]), add);
      found += _mm256_movemask_epi8(at_least(value, cut)) != 0;
    }
  }
  return found;
}

constexpr Kernel kKernel = {"avx2", add_bounds, accumulate, reached, scan};

}  // namespace

const Kernel& avx2_kernel() noexcept {
  return kKernel;
}

}  // namespace ralm

#endif
