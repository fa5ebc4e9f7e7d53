// Generated data behind the tokenizer; tools/generate_unicode_tables.py writes the definitions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ralm {

// Code points from `first` up to the next range's first share one class of the word grammar.
struct ClassRange {
  std::uint32_t first;
  std::uint8_t klass;
};

struct LowerPair {
  std::uint32_t upper;
  std::uint32_t lower;
};

inline constexpr std::uint8_t kDeadState = 0;
inline constexpr std::uint8_t kStartState = 1;
inline constexpr std::uint32_t kNumCodePoints = 0x110000;

extern const std::size_t kNumClasses;
extern const ClassRange kClassRanges[];
extern const std::size_t kNumClassRanges;

// kTransitions[state * kNumClasses + class] is the next state.
extern const std::size_t kNumStates;
extern const std::uint8_t kTransitions[];
extern const std::uint8_t kAccepting[];

// Sorted by upper; code points of ASCII are left to arithmetic.
extern const LowerPair kLowerPairs[];
extern const std::size_t kNumLowerPairs;

}  // namespace ralm
