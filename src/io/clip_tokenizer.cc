// SPDX-License-Identifier: Apache-2.0
#include "io/clip_tokenizer.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr char kBegin[] = "<|startoftext|>";
constexpr char kEnd[] = "<|endoftext|>";
constexpr char kWordEnd[] = "</w>";

enum class Kind { kSpace, kLetter, kNumber, kOther };

Kind KindOf(UChar32 character) {
  if (u_isUWhiteSpace(character)) return Kind::kSpace;
  const uint32_t category = U_GET_GC_MASK(character);
  if (category & U_GC_L_MASK) return Kind::kLetter;
  return category & U_GC_N_MASK ? Kind::kNumber : Kind::kOther;
}

// NFC, then lower case character by character, without the context rule of final sigma.
std::string Normalised(std::string_view text) {
  const icu::UnicodeString composed = InForm(icu::Normalizer2::getNFCInstance, Utf16(text));
  std::string lower;
  for (int32_t i = 0; i < composed.length(); i = composed.moveIndex32(i, 1)) {
    icu::UnicodeString(composed.char32At(i)).toLower(icu::Locale::getRoot()).toUTF8String(lower);
  }
  return lower;
}

// Length in UTF-16 units of an English contraction at `start`, or 0.
int32_t ContractionAt(const icu::UnicodeString& text, int32_t start) {
  for (const char* form : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    const icu::UnicodeString candidate(form, -1, US_INV);
    if (text.compare(start, candidate.length(), candidate) == 0) return candidate.length();
  }
  return 0;
}

// End of the word that begins at `start`, which is no white space.
int32_t WordEndAt(const icu::UnicodeString& text, int32_t start) {
  if (const int32_t length = ContractionAt(text, start); length > 0) return start + length;
  const Kind kind = KindOf(text.char32At(start));
  int32_t end = text.moveIndex32(start, 1);
  if (kind == Kind::kNumber) return end;  // Digits stand alone.
  while (end < text.length() && KindOf(text.char32At(end)) == kind) end = text.moveIndex32(end, 1);
  return end;
}

}  // namespace

absl::StatusOr<ClipTokenizer> ClipTokenizer::Load(const std::filesystem::path& directory) {
  OXBOW_ASSIGN_OR_RETURN(BpeJson model, ReadBpe(directory));
  if (model.path.filename() == kTokenizerJson && model.word_end != kWordEnd) {
    return absl::InvalidArgumentError(absl::StrCat("CLIP's tokenizer ends words with \"", kWordEnd,
                                                   "\", this one with \"", model.word_end,
                                                   "\": ", model.path.string()));
  }
  model.word_end = kWordEnd;
  model.whole_words = false;
  ClipTokenizer tokenizer;
  OXBOW_ASSIGN_OR_RETURN(tokenizer.pairs_, BytePairs::Make(model));
  tokenizer.size_ = tokenizer.pairs_.size();
  OXBOW_RETURN_IF_ERROR(tokenizer.ReadSpecials(directory, std::move(model.added)));
  return tokenizer;
}

absl::Status ClipTokenizer::ReadSpecials(const std::filesystem::path& directory,
                                         std::vector<AddedToken> added) {
  OXBOW_ASSIGN_OR_RETURN(
      const TokenizerSettings settings,
      ReadTokenizerSettings(
          directory,
          {{"bos_token", kBegin}, {"eos_token", kEnd}, {"unk_token", kEnd}, {"pad_token", kEnd}},
          std::move(added)));
  model_max_length_ = settings.model_max_length.value_or(model_max_length_);
  std::vector<AddedToken> tokens = settings.listed;
  for (const auto& [key, text] : settings.named) {
    const std::optional<int64_t> id = pairs_.IdOf(text);
    if (text.empty() || !id) {
      return absl::DataLossError(
          absl::StrCat(key, " is not in the vocabulary: '", text, "': ", directory.string()));
    }
    tokens.push_back(settings.Token(text, *id));
  }
  begin_ = *pairs_.IdOf(settings.named.at("bos_token"));
  end_ = *pairs_.IdOf(settings.named.at("eos_token"));
  unknown_ = *pairs_.IdOf(settings.named.at("unk_token"));
  pad_ = *pairs_.IdOf(settings.named.at("pad_token"));
  std::vector<AddedToken> as_given, normalised;
  for (AddedToken& token : tokens) {
    size_ = std::max(size_, token.id + 1);
    if (token.normalized) token.text = Normalised(token.text);
    (token.normalized ? normalised : as_given).push_back(std::move(token));
  }
  added_ = AddedTokens(std::move(as_given));
  added_normalised_ = AddedTokens(std::move(normalised));
  return absl::OkStatus();
}

std::vector<int64_t> ClipTokenizer::Encode(const std::string& text, int64_t length) const {
  OXBOW_CHECK(length >= 2) << length;
  return TokenRow(Whole(text), end_, pad_, length);
}

std::vector<int64_t> ClipTokenizer::Whole(const std::string& text) const {
  std::vector<int64_t> ids = {begin_};
  added_.Append(text, ids, [&](std::string_view piece) { AppendText(piece, ids); });
  return ids;
}

void ClipTokenizer::AppendText(std::string_view text, std::vector<int64_t>& ids) const {
  added_normalised_.Append(Normalised(text), ids, [&](std::string_view piece) {
    for (const std::string& word : WordsOf(piece)) pairs_.Append(word, unknown_, ids);
  });
}

std::vector<std::string> ClipTokenizer::SplitWords(const std::string& text) const {
  std::vector<std::string> split;
  for (const std::string& word : WordsOf(Normalised(text))) {
    std::vector<int64_t> ids;
    pairs_.Append(word, unknown_, ids);
    if (ids.size() > 1) split.push_back(word);
  }
  return split;
}

std::vector<std::string> ClipTokenizer::WordsOf(std::string_view normal) {
  std::vector<std::string> words;
  const icu::UnicodeString text = Utf16(normal);
  for (int32_t start = 0; start < text.length();) {
    if (KindOf(text.char32At(start)) == Kind::kSpace) {
      start = text.moveIndex32(start, 1);
      continue;
    }
    const int32_t end = WordEndAt(text, start);
    text.tempSubStringBetween(start, end).toUTF8String(words.emplace_back());
    start = end;
  }
  return words;
}

}  // namespace oxbow::io
