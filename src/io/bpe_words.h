// SPDX-License-Identifier: Apache-2.0
// How the tokenizers of language models cut a text into the words that byte pairs then encode: by a
// regular expression, whose alternatives are tried in order at each place.
#pragma once

#include <unicode/unistr.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oxbow::io {

enum class WordRule {
  // Qwen2, Qwen2.5 and Qwen3:
  //   (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n]*
  //   | \s*[\r\n]+ | \s+(?!\S) | \s+
  kQwen2,
  // Mistral's tekken. U is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], V is [\p{Ll}\p{Lm}\p{Lo}\p{M}]:
  //   [^\r\n\p{L}\p{N}]?U*V+ | [^\r\n\p{L}\p{N}]?U+V* | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n/]*
  //   | \s*[\r\n]+ | \s+(?!\S) | \s+
  kTekken,
};

// The rule of an expression as tokenizer.json writes it; none: another one.
std::optional<WordRule> WordRuleOf(std::string_view expression);

// The words of a text in order, UTF-8. Together they are the text.
std::vector<std::string> WordsBy(WordRule rule, const icu::UnicodeString& text);

}  // namespace oxbow::io
