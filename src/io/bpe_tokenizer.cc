// SPDX-License-Identifier: Apache-2.0
#include "io/bpe_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr uint64_t kSettingsBytesMax = 64 << 20;
constexpr char kEndOfText[] = "<|endoftext|>";  // Qwen2's, where its files name none.

// The text of a file that need not be there.
absl::StatusOr<std::string> TextOfFile(const std::filesystem::path& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kSettingsBytesMax);
  return absl::IsNotFound(text.status()) ? std::string() : text;
}

}  // namespace

absl::StatusOr<BpeTokenizer> BpeTokenizer::Load(const std::filesystem::path& directory) {
  OXBOW_ASSIGN_OR_RETURN(BpeJson model, ReadBpe(directory));
  if (!model.word_end.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("it ends words with \"", model.word_end,
                                                   "\", as CLIP's does: ", model.path.string()));
  }
  BpeTokenizer tokenizer;
  OXBOW_RETURN_IF_ERROR(tokenizer.ReadRules(directory, model));
  OXBOW_ASSIGN_OR_RETURN(tokenizer.pairs_, BytePairs::Make(model));
  tokenizer.size_ = tokenizer.pairs_.size();
  OXBOW_RETURN_IF_ERROR(tokenizer.ReadSpecials(directory, std::move(model.added)));
  return tokenizer;
}

absl::Status BpeTokenizer::ReadRules(const std::filesystem::path& directory, const BpeJson& model) {
  auto config = ReadJsonObject(directory / "tokenizer_config.json", kSettingsBytesMax);
  if (absl::IsNotFound(config.status())) config = nlohmann::json::object();
  OXBOW_RETURN_IF_ERROR(config.status());
  pads_left_ = TextIn(*config, "padding_side") == "left";
  OXBOW_ASSIGN_OR_RETURN(chat_template_, TextOfFile(directory / "chat_template.jinja"));
  if (chat_template_.empty()) chat_template_ = TextIn(*config, "chat_template");
  const bool qwen2 = TextIn(*config, "tokenizer_class").starts_with("Qwen2Tokenizer");
  if (qwen2 || model.path.filename() != kTokenizerJson) {
    named_ = {{"eos_token", kEndOfText}, {"unk_token", kEndOfText}, {"pad_token", kEndOfText}};
    return absl::OkStatus();
  }
  const std::optional<WordRule> words = WordRuleOf(model.words);
  if (!words) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its words are neither Qwen2's nor tekken's: ", model.words, ": ", model.path.string()));
  }
  if (!model.normalizer.empty() && model.normalizer != "NFC") {
    return absl::InvalidArgumentError(
        absl::StrCat("normalizer ", model.normalizer, ", not NFC: ", model.path.string()));
  }
  words_ = *words;
  composes_ = !model.normalizer.empty();
  return absl::OkStatus();
}

absl::Status BpeTokenizer::ReadSpecials(const std::filesystem::path& directory,
                                        std::vector<AddedToken> added) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"})
    named_.try_emplace(key);
  OXBOW_ASSIGN_OR_RETURN(const TokenizerSettings settings,
                         ReadTokenizerSettings(directory, named_, std::move(added)));
  named_ = settings.named;
  std::map<std::string, int64_t> listed;
  for (const AddedToken& token : settings.listed) listed.emplace(token.text, token.id);
  std::vector<AddedToken> tokens = settings.listed;
  for (const auto& [key, text] : named_) {
    if (text.empty()) continue;
    const auto found = listed.find(text);
    const auto id = found == listed.end() ? pairs_.IdOf(text) : std::optional(found->second);
    if (!id) {
      return absl::DataLossError(
          absl::StrCat(key, " is not in the vocabulary: '", text, "': ", directory.string()));
    }
    if (found == listed.end()) tokens.push_back(settings.Token(text, *id));
    if (key == "pad_token") pad_ = *id;
  }
  std::vector<AddedToken> as_given, normalised;
  for (AddedToken& token : tokens) {
    size_ = std::max(size_, token.id + 1);
    if (token.normalized) token.text = Utf8(Normalised(token.text));
    (token.normalized ? normalised : as_given).push_back(std::move(token));
  }
  added_ = AddedTokens(std::move(as_given));
  added_normalised_ = AddedTokens(std::move(normalised));
  return absl::OkStatus();
}

icu::UnicodeString BpeTokenizer::Normalised(std::string_view text) const {
  return composes_ ? InForm(icu::Normalizer2::getNFCInstance, Utf16(text)) : Utf16(text);
}

std::vector<int64_t> BpeTokenizer::Ids(const std::string& text) const {
  std::vector<int64_t> ids;
  added_.Append(text, ids, [&](std::string_view piece) { AppendText(piece, ids); });
  return ids;
}

void BpeTokenizer::AppendText(std::string_view text, std::vector<int64_t>& ids) const {
  added_normalised_.Append(Utf8(Normalised(text)), ids, [&](std::string_view piece) {
    for (const std::string& word : WordsBy(words_, Utf16(piece))) {
      pairs_.Append(word, std::nullopt, ids);
    }
  });
}

}  // namespace oxbow::io
