#include "analysis/analyzer.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "analysis/porter.hpp"
#include "analysis/unicode_tables.hpp"
#include "analysis/utf8.hpp"

namespace ralm {

namespace {

// Sorted, for binary search.
constexpr std::array<std::string_view, 33> kStopWords = {
    "a",   "an",    "and",  "are",   "as",    "at",   "be",   "but", "by",  "for",  "if",
    "in",  "into",  "is",   "it",    "no",    "not",  "of",   "on",  "or",  "such", "that",
    "the", "their", "then", "there", "these", "they", "this", "to",  "was", "will", "with",
};
constexpr std::size_t kLongestStopWord = 5;

bool is_stop_word(std::string_view term) noexcept {
  return term.size() <= kLongestStopWord &&
         std::binary_search(kStopWords.begin(), kStopWords.end(), term);
}

std::uint32_t lower(std::uint32_t code) noexcept {
  const LowerPair* end = kLowerPairs + kNumLowerPairs;
  const LowerPair* found =
      std::lower_bound(kLowerPairs, end, code,
                       [](const LowerPair& pair, std::uint32_t c) { return pair.upper < c; });
  return found != end && found->upper == code ? found->lower : code;
}

// Cuts 's behind an ASCII, typographic or full-width apostrophe.
std::string_view without_possessive(std::string_view token) noexcept {
  if (token.empty() || (token.back() != 's' && token.back() != 'S')) return token;
  const std::string_view stem = token.substr(0, token.size() - 1);
  for (const std::string_view apostrophe : {"'", "\u2019", "\uFF07"}) {
    if (stem.ends_with(apostrophe)) return stem.substr(0, stem.size() - apostrophe.size());
  }
  return token;
}

}  // namespace

std::string_view TermStream::next() {
  for (std::string_view token = tokens_.next(); !token.empty(); token = tokens_.next()) {
    normalise(without_possessive(token));
    if (is_stop_word(term_)) continue;
    if (is_ascii_) {
      term_.resize(porter_stem(std::span<char>(term_)));
    } else {
      stem_wide();
    }
    return term_;
  }
  return {};
}

void TermStream::normalise(std::string_view token) {
  term_.clear();
  is_ascii_ = true;
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint code = decode_utf8(token, at);
    at += code.num_bytes;
    if (code.value < 0x80) {
      const bool is_upper = code.value >= 'A' && code.value <= 'Z';
      term_.push_back(static_cast<char>(code.value + (is_upper ? 'a' - 'A' : 0)));
    } else {
      const std::uint32_t lowered = lower(code.value);
      is_ascii_ = is_ascii_ && lowered < 0x80;
      append_utf8(term_, lowered);
    }
  }
}

// Lucene stems UTF-16 units, and the length of a word decides some rules.
void TermStream::stem_wide() {
  wide_.clear();
  for (std::size_t at = 0; at < term_.size();) {
    const CodePoint code = decode_utf8(term_, at);
    at += code.num_bytes;
    if (code.value > 0xFFFF) {
      wide_.push_back(static_cast<char16_t>(0xD800 + ((code.value - 0x10000) >> 10)));
      wide_.push_back(static_cast<char16_t>(0xDC00 + ((code.value - 0x10000) & 0x3FF)));
    } else {
      wide_.push_back(static_cast<char16_t>(code.value));
    }
  }
  wide_.resize(porter_stem(std::span<char16_t>(wide_)));
  term_.clear();
  for (std::size_t i = 0; i < wide_.size(); ++i) {
    const std::uint32_t unit = wide_[i];
    if (unit >= 0xD800 && unit < 0xDC00 && i + 1 < wide_.size()) {
      append_utf8(term_, 0x10000 + ((unit - 0xD800) << 10) + (wide_[++i] - 0xDC00));
    } else {
      append_utf8(term_, unit);
    }
  }
}

}  // namespace ralm
