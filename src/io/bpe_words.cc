// SPDX-License-Identifier: Apache-2.0
#include "io/bpe_words.h"

#include <unicode/uchar.h>

#include <cstdint>

namespace oxbow::io {
namespace {

constexpr std::string_view kQwen2Words =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)re"
    R"re( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kTekkenWords =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)re"
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)re"
    R"re(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr uint32_t kCaseless = U_GC_LM_MASK | U_GC_LO_MASK | U_GC_M_MASK;
constexpr uint32_t kUpper = U_GC_LU_MASK | U_GC_LT_MASK | kCaseless;
constexpr uint32_t kLower = U_GC_LL_MASK | kCaseless;
constexpr uint32_t kLetters = U_GC_L_MASK, kNumbers = U_GC_N_MASK;
constexpr int32_t kNone = -1;

// A text and the parts of a rule, each of which gives the end of what it matches at a place, or
// kNone.
class RuleOnText {
 public:
  RuleOnText(WordRule rule, const icu::UnicodeString& text) : rule_(rule), text_(text) {}

  int32_t WordEnd(int32_t at) const {
    int32_t end = rule_ == WordRule::kQwen2 ? Contraction(at) : kNone;
    if (end == kNone) end = Letters(at);
    if (end != kNone) return end;
    if (Is(at, kNumbers)) return Next(at);
    end = Signs(at);
    return end == kNone ? Space(at) : end;
  }

 private:
  bool AtEnd(int32_t at) const { return at >= text_.length(); }
  int32_t Next(int32_t at) const { return text_.moveIndex32(at, 1); }
  bool Is(int32_t at, uint32_t categories) const {
    return !AtEnd(at) && (U_GET_GC_MASK(text_.char32At(at)) & categories) != 0;
  }
  bool IsSpace(int32_t at) const { return !AtEnd(at) && u_isUWhiteSpace(text_.char32At(at)) != 0; }
  bool IsNewline(int32_t at) const {
    return !AtEnd(at) && (text_.charAt(at) == u'\r' || text_.charAt(at) == u'\n');
  }
  int32_t Run(int32_t at, uint32_t categories) const {
    while (Is(at, categories)) at = Next(at);
    return at;
  }

  // In any case: the long s folds to s.
  int32_t Contraction(int32_t at) const {
    if (text_.charAt(at) != u'\'') return kNone;
    const auto letter = [&](int32_t i) {
      return AtEnd(i) ? UChar32{0} : u_foldCase(text_.char32At(i), U_FOLD_CASE_DEFAULT);
    };
    const UChar32 first = letter(at + 1), second = letter(at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    const bool two =
        ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
    return two ? at + 3 : kNone;
  }

  // Letters, with one sign or space in front if there is one.
  int32_t Letters(int32_t at) const {
    const bool sign = !IsNewline(at) && !Is(at, kLetters | kNumbers);
    if (rule_ == WordRule::kQwen2) {
      const int32_t begin = sign ? Next(at) : at;
      return Is(begin, kLetters) ? Run(begin, kLetters) : kNone;
    }
    for (const auto part : {&RuleOnText::UpperThenLower, &RuleOnText::UpperAtLeast}) {
      int32_t end = sign ? (this->*part)(Next(at)) : kNone;
      if (end == kNone) end = (this->*part)(at);
      if (end != kNone) return end;
    }
    return kNone;
  }

  // U*V+: where no V follows the U, the last U that is a V, too, is the end.
  int32_t UpperThenLower(int32_t begin) const {
    const int32_t middle = Run(begin, kUpper), end = Run(middle, kLower);
    if (end > middle) return end;
    for (int32_t last = middle; last > begin;) {
      const int32_t before = last;
      last = text_.moveIndex32(last, -1);
      if (Is(last, kLower)) return before;
    }
    return kNone;
  }

  // U+V*
  int32_t UpperAtLeast(int32_t begin) const {
    const int32_t middle = Run(begin, kUpper);
    return middle == begin ? kNone : Run(middle, kLower);
  }

  // Characters that are no letter, number or space, with a space in front and line ends behind.
  int32_t Signs(int32_t at) const {
    const auto is_sign = [&](int32_t i) {
      return !AtEnd(i) && !IsSpace(i) && !Is(i, kLetters | kNumbers);
    };
    int32_t end = text_.charAt(at) == u' ' && is_sign(at + 1) ? at + 1 : at;
    if (!is_sign(end)) return kNone;
    while (is_sign(end)) end = Next(end);
    const bool slashes = rule_ == WordRule::kTekken;
    while (IsNewline(end) || (slashes && !AtEnd(end) && text_.charAt(end) == u'/')) ++end;
    return end;
  }

  // Up to the last line end; else all of it before a text's end, and before anything else all but
  // its last character.
  int32_t Space(int32_t at) const {
    int32_t end = at, last = at, line = kNone;
    for (; IsSpace(end); end = Next(end)) {
      last = end;
      if (IsNewline(end)) line = end + 1;
    }
    if (line != kNone) return line;
    return AtEnd(end) || last == at ? end : last;
  }

  const WordRule rule_;
  const icu::UnicodeString& text_;
};

}  // namespace

std::optional<WordRule> WordRuleOf(std::string_view expression) {
  if (expression == kQwen2Words) return WordRule::kQwen2;
  if (expression == kTekkenWords) return WordRule::kTekken;
  return std::nullopt;
}

std::vector<std::string> WordsBy(WordRule rule, const icu::UnicodeString& text) {
  const RuleOnText at_place(rule, text);
  std::vector<std::string> words;
  for (int32_t begin = 0; begin < text.length();) {
    const int32_t end = at_place.WordEnd(begin);
    text.tempSubStringBetween(begin, end).toUTF8String(words.emplace_back());
    begin = end;
  }
  return words;
}

}  // namespace oxbow::io
