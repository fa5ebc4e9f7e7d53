#include "analysis/utf8.hpp"

namespace ralm {

namespace {

// Length that a lead byte promises, 0 where no character starts with it.
std::size_t promised_length(unsigned char lead) noexcept {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

bool is_shortest_and_scalar(std::uint32_t code, std::size_t length) noexcept {
  if (length == 3) return code >= 0x800 && (code < 0xD800 || code > 0xDFFF);
  if (length == 4) return code >= 0x10000 && code <= 0x10FFFF;
  return true;
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = promised_length(static_cast<unsigned char>(text[at]));
    if (length == 0 || at + length > text.size()) return at;
    for (std::size_t i = 1; i < length; ++i) {
      if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return at;
    }
    if (!is_shortest_and_scalar(decode_utf8(text, at).value, length)) return at;
    at += length;
  }
  return std::string_view::npos;
}

}  // namespace ralm
