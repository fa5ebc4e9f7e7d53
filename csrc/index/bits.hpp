// Bit packing and variable-byte numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace ralm {

using ByteBuffer = std::vector<std::byte>;

inline void append_varint(ByteBuffer& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<std::byte>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<std::byte>(value));
}

// Reads at `at`, advances it and never passes `end`. Sets `at` to nullptr on damage.
[[nodiscard]] inline std::uint64_t read_varint(const std::byte*& at,
                                               const std::byte* end) noexcept {
  std::uint64_t value = 0;
  for (unsigned shift = 0; at != nullptr && at < end && shift < 64; shift += 7) {
    const auto byte = static_cast<std::uint64_t>(*at++);
    value |= (byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  at = nullptr;
  return 0;
}

// Appends `values`, each in `num_bits` (at most 32), lowest bit first.
inline void append_packed(ByteBuffer& out, std::span<const std::uint32_t> values,
                          unsigned num_bits) {
  std::uint64_t pending = 0;
  unsigned num_pending = 0;
  for (const std::uint32_t value : values) {
    pending |= static_cast<std::uint64_t>(value) << num_pending;
    num_pending += num_bits;
    while (num_pending >= 8) {
      out.push_back(static_cast<std::byte>(pending));
      pending >>= 8;
      num_pending -= 8;
    }
  }
  if (num_pending > 0) out.push_back(static_cast<std::byte>(pending));
}

// Reads values.size() numbers of `num_bits`; up to 7 bytes past the last are touched.
inline void unpack(const std::byte* in, std::span<std::uint32_t> values,
                   unsigned num_bits) noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << num_bits) - 1;
  std::size_t bit = 0;
  for (std::uint32_t& value : values) {
    std::uint64_t word = 0;
    std::memcpy(&word, in + (bit >> 3), sizeof word);
    value = static_cast<std::uint32_t>(word >> (bit & 7) & mask);
    bit += num_bits;
  }
}

}  // namespace ralm
