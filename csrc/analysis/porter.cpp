#include "analysis/porter.hpp"

#include <string_view>

namespace ralm {

namespace {

struct Rule {
  std::string_view suffix;
  std::string_view replacement;
};

constexpr Rule kDoubleSuffixes[] = {
    {"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"}, {"anci", "ance"}, {"izer", "ize"},
    {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"}, {"eli", "e"},     {"ousli", "ous"},
    {"ization", "ize"}, {"ation", "ate"},   {"ator", "ate"},  {"alism", "al"},  {"iveness", "ive"},
    {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"},  {"iviti", "ive"}, {"biliti", "ble"},
    {"logi", "log"},
};

constexpr Rule kFullNess[] = {
    {"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"},
    {"ical", "ic"},  {"ful", ""},   {"ness", ""},
};

constexpr std::string_view kBareSuffixes[] = {
    "al",  "ance", "ence", "er",  "ic",  "able", "ible", "ant", "ement", "ment",
    "ent", "ion",  "ou",   "ism", "ate", "iti",  "ous",  "ive", "ize",
};

// The word is the first size_ units; stem_ is the length left of the suffix matched last.
template <typename Unit>
class Stemmer {
 public:
  explicit Stemmer(std::span<Unit> word) noexcept : word_(word), size_(word.size()) {}

  std::size_t run() noexcept {
    if (size_ <= 2) return size_;
    plurals();
    past_and_gerund();
    final_y();
    if (size_ > 1) replace_first_match(kDoubleSuffixes);
    replace_first_match(kFullNess);
    if (size_ > 1) drop_bare_suffix();
    final_e();
    final_ll();
    return size_;
  }

 private:
  bool is_consonant(std::size_t i) const noexcept {
    // "y" is a vowel after a consonant: count how far back the run of "y" goes.
    bool flip = false;
    while (word_[i] == 'y' && i > 0) {
      flip = !flip;
      --i;
    }
    const Unit unit = word_[i];
    const bool consonant =
        !(unit == 'a' || unit == 'e' || unit == 'i' || unit == 'o' || unit == 'u');
    return consonant != flip;
  }

  // Number of vowel-consonant sequences in the first `length` units: m in Porter's paper.
  int measure(std::size_t length) const noexcept {
    int count = 0;
    bool previous_consonant = true;
    for (std::size_t i = 0; i < length; ++i) {
      const bool consonant = is_consonant(i);
      count += consonant && !previous_consonant;
      previous_consonant = consonant;
    }
    return count;
  }

  bool has_vowel(std::size_t length) const noexcept {
    for (std::size_t i = 0; i < length; ++i) {
      if (!is_consonant(i)) return true;
    }
    return false;
  }

  bool ends_in_double_consonant() const noexcept {
    return size_ >= 2 && word_[size_ - 1] == word_[size_ - 2] && is_consonant(size_ - 1);
  }

  // Consonant, vowel, consonant at the end of the first `length` units, the last not w, x or y.
  bool ends_in_cvc(std::size_t length) const noexcept {
    if (length < 3 || !is_consonant(length - 1) || is_consonant(length - 2) ||
        !is_consonant(length - 3)) {
      return false;
    }
    const Unit last = word_[length - 1];
    return last != 'w' && last != 'x' && last != 'y';
  }

  bool ends_with(std::string_view suffix) noexcept {
    if (suffix.size() > size_) return false;
    for (std::size_t i = 0; i < suffix.size(); ++i) {
      if (word_[size_ - suffix.size() + i] != static_cast<Unit>(suffix[i])) return false;
    }
    stem_ = size_ - suffix.size();
    return true;
  }

  void replace_suffix(std::string_view replacement) noexcept {
    for (std::size_t i = 0; i < replacement.size(); ++i) {
      word_[stem_ + i] = static_cast<Unit>(replacement[i]);
    }
    size_ = stem_ + replacement.size();
  }

  void plurals() noexcept {
    if (word_[size_ - 1] != 's') return;
    if (ends_with("sses")) {
      size_ -= 2;
    } else if (ends_with("ies")) {
      replace_suffix("i");
    } else if (word_[size_ - 2] != 's') {
      --size_;
    }
  }

  void past_and_gerund() noexcept {
    if (ends_with("eed")) {
      if (measure(stem_) > 0) --size_;
      return;
    }
    if (!(ends_with("ed") || ends_with("ing")) || !has_vowel(stem_)) return;
    size_ = stem_;
    if (ends_with("at")) {
      replace_suffix("ate");
    } else if (ends_with("bl")) {
      replace_suffix("ble");
    } else if (ends_with("iz")) {
      replace_suffix("ize");
    } else if (ends_in_double_consonant()) {
      const Unit last = word_[size_ - 1];
      if (last != 'l' && last != 's' && last != 'z') --size_;
    } else if (measure(size_) == 1 && ends_in_cvc(size_)) {
      stem_ = size_;
      replace_suffix("e");
    }
  }

  void final_y() noexcept {
    if (ends_with("y") && has_vowel(stem_)) word_[size_ - 1] = 'i';
  }

  template <std::size_t N>
  void replace_first_match(const Rule (&rules)[N]) noexcept {
    for (const Rule& rule : rules) {
      if (!ends_with(rule.suffix)) continue;
      if (measure(stem_) > 0) replace_suffix(rule.replacement);
      return;
    }
  }

  void drop_bare_suffix() noexcept {
    for (const std::string_view suffix : kBareSuffixes) {
      if (!ends_with(suffix)) continue;
      if (suffix == "ion" && (stem_ == 0 || (word_[stem_ - 1] != 's' && word_[stem_ - 1] != 't'))) {
        continue;
      }
      if (measure(stem_) > 1) size_ = stem_;
      return;
    }
  }

  void final_e() noexcept {
    if (word_[size_ - 1] != 'e') return;
    const int m = measure(size_);
    if (m > 1 || (m == 1 && !ends_in_cvc(size_ - 1))) --size_;
  }

  void final_ll() noexcept {
    if (word_[size_ - 1] == 'l' && ends_in_double_consonant() && measure(size_) > 1) --size_;
  }

  std::span<Unit> word_;
  std::size_t size_;
  std::size_t stem_ = 0;
};

}  // namespace

std::size_t porter_stem(std::span<char> word) noexcept {
  return Stemmer<char>(word).run();
}

std::size_t porter_stem(std::span<char16_t> word) noexcept {
  return Stemmer<char16_t>(word).run();
}

}  // namespace ralm
