// 64-bit checksum of a byte range: four multiply-rotate lanes, 32 bytes a step. It detects damage;
// it is no defence against someone who forges a file.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ralm {

class Checksum {
 public:
  // Ranges may be cut anywhere: only the bytes in sequence count.
  void add(std::span<const std::byte> bytes) noexcept {
    total_ += bytes.size();
    while (!bytes.empty()) {
      if (num_pending_ == 0) {
        while (bytes.size() >= kStep) {
          mix(bytes.data());
          bytes = bytes.subspan(kStep);
        }
      }
      const std::size_t take = std::min(kStep - num_pending_, bytes.size());
      if (take > 0) std::memcpy(pending_ + num_pending_, bytes.data(), take);
      num_pending_ += take;
      bytes = bytes.subspan(take);
      if (num_pending_ == kStep) {
        mix(pending_);
        num_pending_ = 0;
      }
    }
  }

  [[nodiscard]] std::uint64_t value() const noexcept {
    Checksum last = *this;
    std::memset(last.pending_ + last.num_pending_, 0, kStep - last.num_pending_);
    last.mix(last.pending_);
    std::uint64_t hash = total_ * kPrime;
    for (const std::uint64_t lane : last.lanes_) {
      hash = (std::rotl(hash, 27) ^ lane) * kPrime;
      hash ^= hash >> 31;
    }
    return hash;
  }

 private:
  static constexpr std::size_t kStep = 32;
  static constexpr std::uint64_t kPrime = 0x9E3779B185EBCA87U;

  void mix(const std::byte* at) noexcept {
    for (std::size_t i = 0; i < 4; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, at + 8 * i, 8);
      lanes_[i] = std::rotl(lanes_[i] ^ word, 29) * kPrime;
    }
  }

  std::uint64_t lanes_[4] = {1, 2, 3, 4};
  std::byte pending_[kStep] = {};
  std::size_t num_pending_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace ralm
