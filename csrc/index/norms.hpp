// Lucene's one-byte passage lengths (SmallFloat): exact to 40, then three bits of mantissa.
#pragma once

#include <bit>
#include <cstdint>

namespace ralm {

inline constexpr std::uint32_t kNumExactLengths = 24;

[[nodiscard]] constexpr std::uint8_t encode_length(std::uint32_t length) noexcept {
  if (length < kNumExactLengths) return static_cast<std::uint8_t>(length);
  const std::uint32_t rest = length - kNumExactLengths;
  const auto num_bits = static_cast<std::uint32_t>(std::bit_width(rest));
  if (num_bits < 4) return static_cast<std::uint8_t>(kNumExactLengths + rest);
  const std::uint32_t shift = num_bits - 4;
  const std::uint32_t mantissa = (rest >> shift) & 0x07;
  return static_cast<std::uint8_t>(kNumExactLengths + (mantissa | (shift + 1) << 3));
}

[[nodiscard]] constexpr std::uint32_t decode_length(std::uint8_t norm) noexcept {
  if (norm < kNumExactLengths) return norm;
  const std::uint32_t code = norm - kNumExactLengths;
  const std::uint32_t mantissa = code & 0x07;
  const std::uint32_t exponent = code >> 3;
  return kNumExactLengths + (exponent == 0 ? mantissa : (mantissa | 0x08) << (exponent - 1));
}

static_assert(encode_length(40) == 40 && decode_length(encode_length(40)) == 40);

}  // namespace ralm
