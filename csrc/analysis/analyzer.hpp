// Text to index terms: Lucene's EnglishAnalyzer in the configuration of Anserini.
#pragma once

#include <string>
#include <string_view>

#include "analysis/tokenizer.hpp"

namespace ralm {

// Name written into index headers; a change of any rule needs a new one.
inline constexpr std::string_view kAnalyzerName = "lucene-english-porter-1";

// Streams the terms of one text: word break, possessive 's, lower case, stop words, Porter.
// A view that next() returned stays valid until the following call.
class TermStream {
 public:
  // `text` is valid UTF-8 and outlives the stream.
  explicit TermStream(std::string_view text) : tokens_(text) {}

  // The next term, or an empty view at the end.
  [[nodiscard]] std::string_view next();

 private:
  void normalise(std::string_view token);
  void stem_wide();

  Tokenizer tokens_;
  std::string term_;
  std::u16string wide_;
  bool is_ascii_ = true;
};

}  // namespace ralm
