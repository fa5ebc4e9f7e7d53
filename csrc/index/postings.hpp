// One posting list, to bytes and back.
#pragma once

#include <cstdint>
#include <span>

#include "index/bits.hpp"
#include "index/format.hpp"

namespace ralm {

struct Posting {
  PassageId passage;
  std::uint32_t frequency;
};

// Appends the list; passages ascend strictly, frequencies are 1..kMaxTermFrequency.
void encode_postings(std::span<const Posting> postings, std::span<const std::uint8_t> norms,
                     ByteBuffer& out);

// Reads one list block by block. `bytes` is followed by kReadPadding readable bytes.
class PostingReader {
 public:
  PostingReader(std::span<const std::byte> bytes, std::uint32_t num_postings,
                std::uint64_t num_passages) noexcept
      : at_(bytes.data()),
        end_(bytes.data() + bytes.size()),
        num_left_(num_postings),
        num_passages_(num_passages) {}

  // Decodes the next block or the tail. Returns the number of postings, 0 at the end.
  // Throws InputFault on bytes that no writer produces.
  [[nodiscard]] std::uint32_t next(std::span<PassageId, kBlockSize> passages,
                                   std::span<std::uint32_t, kBlockSize> frequencies);

  // Passes over full blocks whose last passage is below `target`; returns the postings passed.
  std::uint32_t skip_below(PassageId target);

 private:
  [[nodiscard]] BlockHeader peek() const;
  void decode_block(std::span<PassageId, kBlockSize> passages,
                    std::span<std::uint32_t, kBlockSize> frequencies);
  void decode_tail(std::span<PassageId, kBlockSize> passages,
                   std::span<std::uint32_t, kBlockSize> frequencies);

  const std::byte* at_;
  const std::byte* end_;
  std::uint32_t num_left_;
  std::uint64_t num_passages_;
  std::uint64_t next_passage_ = 0;  // the smallest passage that may follow
};

}  // namespace ralm
