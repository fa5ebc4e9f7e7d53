// Posting lists decoded for the strided search, kept while they fit.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "index/reader.hpp"
#include "search/bm25.hpp"

namespace ralm {

// Passages that are accumulated together. 2048 accumulators of 32 bytes stay in a second-level
// cache, and a byte offset into them fits 16 bits.
inline constexpr std::uint32_t kRangeSize = 2048;
inline constexpr std::uint32_t kOffsetScale = 32;
// Ranges that are decoded together: bounds the memory of one group of queries on large indexes.
inline constexpr std::uint32_t kRangesPerSpan = 512;
inline constexpr std::uint32_t kSpanSize = kRangeSize * kRangesPerSpan;

// Offset of the passage's accumulator in its range, and an upper bound of
// 65536 (1 - 1/(1 + tf/norm)): the score of the posting for a weight of 65536.
struct Impact {
  std::uint16_t offset;
  std::uint16_t saturation;
};

// One term in one span of passages.
struct DecodedList {
  std::vector<Impact> impacts;
  std::vector<std::uint16_t> frequencies;
  std::array<std::uint32_t, kRangesPerSpan + 1> begins{};  // of every range, in impacts
  std::array<std::uint16_t, kRangesPerSpan> maxima{};      // saturation
  std::uint16_t maximum = 0;                               // of maxima

  [[nodiscard]] std::size_t num_bytes() const noexcept {
    return sizeof *this + impacts.capacity() * (sizeof(Impact) + sizeof(std::uint16_t));
  }
  // Index in impacts of a passage given by its range and its number in it, or kAbsent.
  [[nodiscard]] std::uint32_t find(std::uint32_t range, std::uint32_t local) const noexcept;

  static constexpr std::uint32_t kAbsent = 0xFFFFFFFF;
};

// Upper bounds of 65536 (1 - 1/(1 + tf/norm)) by frequency and norm.
class SaturationTable {
 public:
  explicit SaturationTable(const Bm25& bm25);
  [[nodiscard]] std::uint16_t of(std::uint32_t frequency, std::uint8_t norm) const noexcept {
    return frequency < kNumFrequencies ? table_[frequency * 256 + norm] : compute(frequency, norm);
  }

 private:
  // Frequencies beyond these are one posting in 3,000 and are computed.
  static constexpr std::uint32_t kNumFrequencies = 8;
  [[nodiscard]] std::uint16_t compute(std::uint32_t frequency, std::uint8_t norm) const noexcept;

  const Bm25& bm25_;
  std::array<std::uint16_t, kNumFrequencies * 256> table_{};
};

// Least recently used lists go first. Lists handed out stay valid while their pointer is held.
class ListCache {
 public:
  ListCache(const IndexReader& index, const Bm25& bm25, std::size_t capacity_bytes)
      : index_(index), saturations_(bm25), capacity_bytes_(capacity_bytes) {}

  [[nodiscard]] std::shared_ptr<const DecodedList> get(TermId term, std::uint32_t span);

 private:
  struct Entry {
    std::uint64_t key;
    std::shared_ptr<const DecodedList> list;
  };

  [[nodiscard]] std::shared_ptr<const DecodedList> decode(TermId term, std::uint32_t span) const;

  const IndexReader& index_;
  SaturationTable saturations_;
  std::size_t capacity_bytes_;
  std::size_t num_bytes_ = 0;
  std::list<Entry> entries_;  // most recent first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> by_key_;
};

}  // namespace ralm
