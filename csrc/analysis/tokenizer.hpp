// Word break: UAX #29 with emoji sequences, as Lucene's StandardTokenizer applies it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace ralm {

// Class of every code point for the word grammar, expanded once per process (1.1 MB).
class CharacterClasses {
 public:
  CharacterClasses();
  [[nodiscard]] std::uint8_t of(std::uint32_t code) const noexcept { return classes_[code]; }

  [[nodiscard]] static const CharacterClasses& instance();

 private:
  std::unique_ptr<std::uint8_t[]> classes_;
};

// Walks the tokens of one text, in order.
class Tokenizer {
 public:
  // Lucene's limit, in UTF-16 units: longer runs are cut there and go on as a new token.
  static constexpr std::uint32_t kMaxTokenLength = 255;

  // `text` is valid UTF-8 and outlives the tokenizer.
  explicit Tokenizer(std::string_view text) noexcept
      : text_(text), classes_(CharacterClasses::instance()) {}

  // The next token, or an empty view at the end of the text.
  [[nodiscard]] std::string_view next() noexcept;

 private:
  [[nodiscard]] std::size_t longest_match() const noexcept;

  std::string_view text_;
  std::size_t at_ = 0;
  const CharacterClasses& classes_;
};

}  // namespace ralm
