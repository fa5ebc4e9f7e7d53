// The index file: one header, five sections, everything little-endian. docs/specs/native-index.md
// describes it for people.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ralm {

static_assert(std::endian::native == std::endian::little, "the index file is mapped as it is");

using PassageId = std::uint32_t;
using TermId = std::uint32_t;

inline constexpr std::array<char, 8> kMagic = {'R', 'A', 'L', 'M', 'B', 'M', '2', '5'};
inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::uint32_t kEndianTag = 0x01020304;

// Full blocks hold this many postings; what is left of a list is a tail of variable-byte numbers.
inline constexpr std::uint32_t kBlockSize = 128;
// Bit-packed numbers are read eight bytes at a time, so the postings end in this much padding.
inline constexpr std::size_t kReadPadding = 16;
// Term frequencies saturate here: a 16-bit count, and 1 - 1/(1 + tf/k1) is flat long before.
inline constexpr std::uint32_t kMaxTermFrequency = 0xFFFF;

struct Section {
  std::uint64_t offset = 0;
  std::uint64_t num_bytes = 0;
  std::uint64_t checksum = 0;
};

enum SectionId : std::size_t { kPostings, kNorms, kTerms, kTermBytes, kNumSections };

struct FileHeader {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kFormatVersion;
  std::uint32_t endian_tag = kEndianTag;
  std::uint64_t num_bytes = 0;
  std::uint64_t num_passages = 0;
  std::uint64_t num_nonempty = 0;  // passages with at least one term: Lucene's docCount
  std::uint64_t num_tokens = 0;    // Lucene's sumTotalTermFreq
  std::uint64_t num_terms = 0;
  std::uint64_t num_postings = 0;
  std::array<Section, kNumSections> sections{};
  std::uint64_t checksum = 0;  // of everything above
};

// One a term, sorted by the bytes of the term, and one more that only closes the last.
struct TermEntry {
  std::uint64_t postings_offset = 0;
  std::uint32_t num_postings = 0;
  std::uint32_t bytes_offset = 0;
};

// Precedes the packed numbers of a full block: gaps - 1 to the previous passage, then
// frequencies - 1.
struct BlockHeader {
  std::uint32_t last_passage = 0;
  std::uint8_t gap_bits = 0;
  std::uint8_t frequency_bits = 0;
  std::uint8_t max_frequency = 0;  // saturated at 255, which stands for "or more"
  std::uint8_t min_norm = 0;       // of the shortest passage in the block
};

static_assert(std::is_trivially_copyable_v<FileHeader> && sizeof(FileHeader) == 168);
static_assert(std::is_trivially_copyable_v<TermEntry> && sizeof(TermEntry) == 16);
static_assert(std::is_trivially_copyable_v<BlockHeader> && sizeof(BlockHeader) == 8);

}  // namespace ralm
