// SPDX-License-Identifier: Apache-2.0
#include "io/bert_tokenizer.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr uint64_t kVocabularyBytesMax = 64 << 20;
constexpr size_t kWordCharactersMax = 100;
constexpr UChar32 kReplacement = 0xfffd;

struct Range {
  UChar32 first, last;
};
// Ideographs, each a word of its own. BERT's list, which leaves out Hangul and kana.
constexpr std::array<Range, 8> kIdeographs = {{{0x4e00, 0x9fff},
                                               {0x3400, 0x4dbf},
                                               {0x20000, 0x2a6df},
                                               {0x2a700, 0x2b73f},
                                               {0x2b740, 0x2b81f},
                                               {0x2b920, 0x2ceaf},
                                               {0xf900, 0xfaff},
                                               {0x2f800, 0x2fa1f}}};

bool IsIdeograph(UChar32 character) {
  for (const Range& range : kIdeographs) {
    if (character >= range.first && character <= range.last) return true;
  }
  return false;
}

// Controls, formats, private use.
bool IsDropped(UChar32 character) {
  if (character == '\t' || character == '\n' || character == '\r') return false;
  if (character == 0 || character == kReplacement) return true;
  constexpr uint32_t kDropped = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK | U_GC_CS_MASK;
  return (U_GET_GC_MASK(character) & kDropped) != 0;
}

bool IsPunctuation(UChar32 character) {
  if (character < 0x80) return character > ' ' && character < 0x7f && !u_isalnum(character);
  return (U_GET_GC_MASK(character) & U_GC_P_MASK) != 0;
}

icu::UnicodeString Cleaned(std::string_view utf8) {
  const icu::UnicodeString text = Utf16(utf8);
  icu::UnicodeString clean;
  for (int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1)) {
    const UChar32 character = text.char32At(i);
    if (IsDropped(character)) continue;
    if (IsIdeograph(character)) {
      clean.append(u' ').append(character).append(u' ');
    } else {
      clean.append(u_isUWhiteSpace(character) ? static_cast<UChar32>(u' ') : character);
    }
  }
  return clean;
}

// Without accents, in lower case character by character: without the rule of final sigma.
icu::UnicodeString NormalisedText(std::string_view utf8) {
  const icu::UnicodeString apart = InForm(icu::Normalizer2::getNFDInstance, Cleaned(utf8));
  icu::UnicodeString lower;
  for (int32_t i = 0; i < apart.length(); i = apart.moveIndex32(i, 1)) {
    const UChar32 character = apart.char32At(i);
    if (u_charType(character) == U_NON_SPACING_MARK) continue;
    lower.append(icu::UnicodeString(character).toLower(icu::Locale::getRoot()));
  }
  return lower;
}

}  // namespace

absl::StatusOr<BertTokenizer> BertTokenizer::Load(const std::filesystem::path& directory,
                                                  const std::vector<std::string>& added) {
  const std::filesystem::path path = directory / "vocab.txt";
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kVocabularyBytesMax));
  BertTokenizer tokenizer;
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  for (std::string& line : lines) {
    if (line.ends_with('\r')) line.pop_back();
    tokenizer.vocabulary_[line] = tokenizer.size_++;
  }
  for (const std::string& token : added) {
    if (tokenizer.vocabulary_.emplace(token, tokenizer.size_).second) ++tokenizer.size_;
  }
  std::vector<AddedToken> special;
  for (const auto& [name, id] : {std::pair("[CLS]", &tokenizer.begin_),
                                 {"[SEP]", &tokenizer.end_},
                                 {"[UNK]", &tokenizer.unknown_},
                                 {"[PAD]", &tokenizer.pad_}}) {
    const auto found = tokenizer.vocabulary_.find(name);
    if (found == tokenizer.vocabulary_.end()) {
      return absl::DataLossError(absl::StrCat("no token ", name, ": ", path.string()));
    }
    *id = found->second;
    special.push_back({.text = name, .id = found->second});
  }
  for (const std::string& token : added) {
    special.push_back({.text = token, .id = tokenizer.vocabulary_.at(token)});
  }
  if (const auto mask = tokenizer.vocabulary_.find("[MASK]"); mask != tokenizer.vocabulary_.end()) {
    special.push_back({.text = mask->first, .id = mask->second});
  }
  tokenizer.special_ = AddedTokens(std::move(special));
  return tokenizer;
}

std::vector<int64_t> BertTokenizer::Encode(const std::string& text, int64_t length) const {
  OXBOW_CHECK(length >= 2) << length;
  std::vector<int64_t> ids = {begin_};
  special_.Append(text, ids, [&](std::string_view piece) { AppendText(piece, ids); });
  if (ids.size() > static_cast<size_t>(length - 1)) ids.resize(static_cast<size_t>(length - 1));
  ids.push_back(end_);
  return ids;
}

void BertTokenizer::AppendText(std::string_view text, std::vector<int64_t>& ids) const {
  const icu::UnicodeString normal = NormalisedText(text);
  std::vector<std::string> word;
  const auto end_word = [&] {
    if (!word.empty()) AppendWord(word, ids);
    word.clear();
  };
  for (int32_t i = 0; i < normal.length(); i = normal.moveIndex32(i, 1)) {
    const UChar32 character = normal.char32At(i);
    if (u_isUWhiteSpace(character)) {
      end_word();
      continue;
    }
    const bool alone = IsPunctuation(character);
    if (alone) end_word();
    icu::UnicodeString(character).toUTF8String(word.emplace_back());
    if (alone) end_word();
  }
  end_word();
}

void BertTokenizer::AppendWord(const std::vector<std::string>& characters,
                               std::vector<int64_t>& ids) const {
  const size_t before = ids.size();
  const auto unknown = [&] {
    ids.resize(before);
    ids.push_back(unknown_);
  };
  if (characters.size() > kWordCharactersMax) return unknown();
  for (size_t start = 0; start < characters.size();) {
    std::string piece = start == 0 ? "" : "##";
    size_t end = start;
    int64_t id = -1;
    for (size_t i = start; i < characters.size(); ++i) {
      piece += characters[i];
      const auto found = vocabulary_.find(piece);
      if (found == vocabulary_.end()) continue;
      id = found->second;
      end = i + 1;
    }
    if (id < 0) return unknown();
    ids.push_back(id);
    start = end;
  }
}

}  // namespace oxbow::io
