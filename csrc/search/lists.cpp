#include "search/lists.hpp"

#include <algorithm>
#include <cmath>

namespace ralm {

std::uint32_t DecodedList::find(std::uint32_t range, std::uint32_t local) const noexcept {
  const std::uint32_t begin = begins[range];
  std::uint32_t size = begins[range + 1] - begin;
  if (size == 0) return kAbsent;
  const std::uint32_t wanted = local * kOffsetScale;
  const Impact* base = impacts.data() + begin;
  // Without branches on data: a list in a range has 10 to 500 entries in no order a processor
  // could predict.
  while (size > 1) {
    const std::uint32_t half = size / 2;
    base += base[half].offset <= wanted ? half : 0;
    size -= half;
  }
  return base->offset == wanted ? static_cast<std::uint32_t>(base - impacts.data()) : kAbsent;
}

SaturationTable::SaturationTable(const Bm25& bm25) : bm25_(bm25) {
  for (std::uint32_t frequency = 0; frequency < kNumFrequencies; ++frequency) {
    for (std::uint32_t norm = 0; norm < 256; ++norm) {
      const auto byte = static_cast<std::uint8_t>(norm);
      table_[frequency * 256 + norm] = compute(frequency, byte);
    }
  }
}

std::uint16_t SaturationTable::compute(std::uint32_t frequency, std::uint8_t norm) const noexcept {
  const double exact = bm25_.score(1.0F, frequency, norm) * 65536.0;
  return static_cast<std::uint16_t>(std::min(std::ceil(exact), 65535.0));
}

std::shared_ptr<const DecodedList> ListCache::get(TermId term, std::uint32_t span) {
  const std::uint64_t key = std::uint64_t{span} << 32 | term;
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front().list;
  }
  entries_.push_front({key, decode(term, span)});
  by_key_[key] = entries_.begin();
  num_bytes_ += entries_.front().list->num_bytes();
  while (num_bytes_ > capacity_bytes_ && entries_.size() > 1) {
    num_bytes_ -= entries_.back().list->num_bytes();
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return entries_.front().list;
}

std::shared_ptr<const DecodedList> ListCache::decode(TermId term, std::uint32_t span) const {
  auto list = std::make_shared<DecodedList>();
  const std::uint64_t first = std::uint64_t{span} * kSpanSize;
  const std::uint64_t end = std::min(first + kSpanSize, index_.num_passages());
  const std::uint64_t most = index_.document_frequency(term);
  const std::uint64_t share = most * (end - first) / index_.num_passages();
  list->impacts.reserve(std::min<std::uint64_t>(most, share + kBlockSize));
  list->frequencies.reserve(list->impacts.capacity());
  const std::uint8_t* norms = index_.norms().data();

  std::array<PassageId, kBlockSize> passages{};
  std::array<std::uint32_t, kBlockSize> frequencies{};
  PostingReader reader = index_.postings(term);
  reader.skip_below(static_cast<PassageId>(first));
  std::uint32_t open_range = 0;
  while (const std::uint32_t count = reader.next(passages, frequencies)) {
    if (passages[0] >= end) break;
    for (std::uint32_t i = 0; i < count; ++i) {
      const PassageId passage = passages[i];
      if (passage < first || passage >= end) continue;
      const auto in_span = static_cast<std::uint32_t>(passage - first);
      const std::uint32_t range = in_span / kRangeSize;
      while (open_range < range) {
        list->begins[++open_range] = static_cast<std::uint32_t>(list->impacts.size());
      }
      const std::uint16_t saturation = saturations_.of(frequencies[i], norms[passage]);
      list->maxima[range] = std::max(list->maxima[range], saturation);
      list->impacts.push_back(
          {static_cast<std::uint16_t>(in_span % kRangeSize * kOffsetScale), saturation});
      list->frequencies.push_back(static_cast<std::uint16_t>(frequencies[i]));
    }
  }
  while (open_range < kRangesPerSpan) {
    list->begins[++open_range] = static_cast<std::uint32_t>(list->impacts.size());
  }
  list->maximum = *std::max_element(list->maxima.begin(), list->maxima.end());
  return list;
}

}  // namespace ralm
