// Porter's stemmer the way Lucene has it: the published algorithm with "bli -> ble" in place of
// "abli -> able" and the extra rule "logi -> log".
#pragma once

#include <cstddef>
#include <span>

namespace ralm {

// Stems `word` in place and returns its new length. Units are UTF-16 code units (char16_t) or, for
// words of ASCII only, bytes; every unit that is no ASCII vowel counts as a consonant.
[[nodiscard]] std::size_t porter_stem(std::span<char> word) noexcept;
[[nodiscard]] std::size_t porter_stem(std::span<char16_t> word) noexcept;

}  // namespace ralm
