// Lucene's BM25 arithmetic, in float where Lucene has float.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "index/norms.hpp"

namespace ralm {

struct Bm25Parameters {
  float k1 = 0.9F;
  float b = 0.4F;
};

// Statistics of one index under given parameters.
class Bm25 {
 public:
  Bm25(Bm25Parameters parameters, std::uint64_t num_nonempty, std::uint64_t num_tokens) noexcept
      : num_passages_(static_cast<double>(num_nonempty)) {
    const auto mean_length =
        num_nonempty == 0 ? 1.0F
                          : static_cast<float>(static_cast<double>(num_tokens) / num_passages_);
    for (std::size_t norm = 0; norm < inverse_.size(); ++norm) {
      const auto length = static_cast<float>(decode_length(static_cast<std::uint8_t>(norm)));
      inverse_[norm] =
          1.0F / (parameters.k1 * ((1.0F - parameters.b) + parameters.b * length / mean_length));
    }
  }

  [[nodiscard]] float weight(std::uint32_t document_frequency,
                             std::uint32_t multiplicity) const noexcept {
    const double df = document_frequency;
    const auto idf = static_cast<float>(std::log(1.0 + (num_passages_ - df + 0.5) / (df + 0.5)));
    return static_cast<float>(multiplicity) * idf;
  }

  [[nodiscard]] float score(float weight, std::uint32_t frequency,
                            std::uint8_t norm) const noexcept {
    return weight - weight / (1.0F + static_cast<float>(frequency) * inverse_[norm]);
  }

 private:
  double num_passages_;
  std::array<float, 256> inverse_{};
};

}  // namespace ralm
