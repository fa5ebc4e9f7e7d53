#include "analysis/tokenizer.hpp"

#include <cstring>

#include "analysis/unicode_tables.hpp"
#include "analysis/utf8.hpp"

namespace ralm {

CharacterClasses::CharacterClasses() : classes_(new std::uint8_t[kNumCodePoints]) {
  for (std::size_t i = 0; i < kNumClassRanges; ++i) {
    const std::uint32_t first = kClassRanges[i].first;
    const std::uint32_t last = i + 1 < kNumClassRanges ? kClassRanges[i + 1].first : kNumCodePoints;
    std::memset(&classes_[first], kClassRanges[i].klass, last - first);
  }
}

const CharacterClasses& CharacterClasses::instance() {
  static const CharacterClasses classes;
  return classes;
}

std::string_view Tokenizer::next() noexcept {
  while (at_ < text_.size()) {
    const std::size_t length = longest_match();
    if (length > 0) {
      const std::string_view token = text_.substr(at_, length);
      at_ += length;
      return token;
    }
    at_ += decode_utf8(text_, at_).num_bytes;
  }
  return {};
}

std::size_t Tokenizer::longest_match() const noexcept {
  std::size_t end = at_;
  std::size_t matched = 0;
  std::uint32_t num_utf16 = 0;
  std::size_t state = kStartState;
  while (end < text_.size()) {
    const CodePoint code = decode_utf8(text_, end);
    num_utf16 += code.num_utf16();
    if (num_utf16 > kMaxTokenLength) break;
    state = kTransitions[state * kNumClasses + classes_.of(code.value)];
    if (state == kDeadState) break;
    end += code.num_bytes;
    if (kAccepting[state]) matched = end - at_;
  }
  return matched;
}

}  // namespace ralm
