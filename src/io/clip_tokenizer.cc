// SPDX-License-Identifier: Apache-2.0
#include "io/clip_tokenizer.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <optional>
#include <queue>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

using Json = nlohmann::json;

constexpr char kBegin[] = "<|startoftext|>";
constexpr char kEnd[] = "<|endoftext|>";
constexpr char kWordEnd[] = "</w>";
constexpr uint64_t kClipFileBytesMax = 64 << 20;

bool IsPrintableByte(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// Each byte as a printable character (GPT-2's table): itself, or from U+0100 on for the others.
const std::array<std::string, 256>& ByteCharacters() {
  static const auto* const table = [] {
    auto* characters = new std::array<std::string, 256>;
    UChar32 next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      (*characters)[static_cast<size_t>(byte)] =
          Utf8(icu::UnicodeString(IsPrintableByte(byte) ? byte : next++));
    }
    return characters;
  }();
  return *table;
}

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

absl::Status ReadVocabulary(const std::filesystem::path& path, BpeJson& model) {
  OXBOW_ASSIGN_OR_RETURN(const Json json, ReadJsonObject(path, kClipFileBytesMax));
  for (const auto& [token, id] : json.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      return absl::DataLossError(absl::StrCat("token id is no id: ", token, ": ", path.string()));
    }
    model.vocabulary.emplace_back(token, id.get<int64_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const std::filesystem::path& path, BpeJson& model) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kClipFileBytesMax));
  bool first = true;
  for (const auto part : absl::StrSplit(text, '\n')) {
    std::string line(part);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const bool version = std::exchange(first, false) && line.starts_with("#version");
    if (line.empty() || version) continue;
    if (std::count(line.begin(), line.end(), ' ') != 1) {
      return absl::DataLossError(
          absl::StrCat("merge is not a pair: '", line, "': ", path.string()));
    }
    const size_t space = line.find(' ');
    model.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return absl::OkStatus();
}

// vocab.json and merges.txt.
absl::StatusOr<BpeJson> ReadTwoFiles(const std::filesystem::path& directory) {
  BpeJson model;
  const absl::Status vocabulary = ReadVocabulary(directory / "vocab.json", model);
  if (absl::IsNotFound(vocabulary)) {
    return absl::NotFoundError(
        absl::StrCat("no tokenizer.json and no vocab.json in ", directory.string()));
  }
  OXBOW_RETURN_IF_ERROR(vocabulary);
  OXBOW_RETURN_IF_ERROR(ReadMerges(directory / "merges.txt", model));
  return model;
}

uint64_t PairOf(int64_t left, int64_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
}

}  // namespace

absl::StatusOr<ClipTokenizer> ClipTokenizer::Load(const std::filesystem::path& directory) {
  OXBOW_ASSIGN_OR_RETURN(std::optional<BpeJson> model, ReadBpeJson(directory));
  std::filesystem::path path = directory / kTokenizerJson;
  if (!model) {
    path = directory / "merges.txt";
    OXBOW_ASSIGN_OR_RETURN(model, ReadTwoFiles(directory));
  }
  ClipTokenizer tokenizer;
  const absl::Status status = tokenizer.TakeModel(*model);
  if (!status.ok()) return absl::DataLossError(absl::StrCat(status.message(), ": ", path.string()));
  OXBOW_RETURN_IF_ERROR(tokenizer.ReadSpecials(directory, std::move(model->added)));
  return tokenizer;
}

absl::Status ClipTokenizer::TakeModel(const BpeJson& model) {
  for (const auto& [token, id] : model.vocabulary) {
    vocabulary_[token] = id;
    size_ = std::max(size_, id + 1);
  }
  for (const auto& [left, right] : model.merges) {
    std::array<int64_t, 3> ids = {};
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto found = vocabulary_.find(i == 0 ? left : i == 1 ? right : left + right);
      if (found == vocabulary_.end()) {
        return absl::DataLossError(
            absl::StrCat("merge is not of the vocabulary: '", left, " ", right, "'"));
      }
      ids[i] = found->second;
    }
    const auto rank = static_cast<int64_t>(merges_.size());
    merges_.emplace(PairOf(ids[0], ids[1]), Merge{.rank = rank, .id = ids[2]});
  }
  return absl::OkStatus();
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
    const auto found = vocabulary_.find(text);
    if (text.empty() || found == vocabulary_.end()) {
      return absl::DataLossError(
          absl::StrCat(key, " is not in the vocabulary: '", text, "': ", directory.string()));
    }
    tokens.push_back(settings.Token(text, found->second));
  }
  begin_ = vocabulary_.at(settings.named.at("bos_token"));
  end_ = vocabulary_.at(settings.named.at("eos_token"));
  unknown_ = vocabulary_.at(settings.named.at("unk_token"));
  pad_ = vocabulary_.at(settings.named.at("pad_token"));
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
    for (const std::string& word : WordsOf(piece)) AppendWord(word, ids);
  });
}

std::vector<std::string> ClipTokenizer::SplitWords(const std::string& text) const {
  std::vector<std::string> split;
  for (const std::string& word : WordsOf(Normalised(text))) {
    std::vector<int64_t> ids;
    AppendWord(word, ids);
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

// Merges the pair of the lowest rank, of several the leftmost, until no pair is left. A symbol that
// went into its left neighbour has id -1.
void ClipTokenizer::AppendWord(std::string_view word, std::vector<int64_t>& ids) const {
  struct Symbol {
    int64_t id;
    size_t left, right;
  };
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < word.size(); ++i) {
    std::string text = ByteCharacters()[static_cast<unsigned char>(word[i])];
    if (i + 1 == word.size()) text += kWordEnd;
    const auto found = vocabulary_.find(text);
    symbols.push_back(
        {found == vocabulary_.end() ? unknown_ : found->second, i == 0 ? 0 : i - 1, i + 1});
  }
  using Candidate = std::tuple<int64_t, size_t, int64_t>;  // Rank, left symbol, id of the two.
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](size_t left, size_t right) {
    const auto merge = merges_.find(PairOf(symbols[left].id, symbols[right].id));
    if (merge != merges_.end()) queue.emplace(merge->second.rank, left, merge->second.id);
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) offer(i, i + 1);
  while (!queue.empty()) {
    const auto [rank, at, id] = queue.top();
    queue.pop();
    Symbol& left = symbols[at];
    if (left.id < 0 || left.right >= symbols.size()) continue;
    Symbol& right = symbols[left.right];
    const auto merge = merges_.find(PairOf(left.id, right.id));
    if (merge == merges_.end() || merge->second.rank != rank) continue;  // One of the two changed.
    left.id = id;
    left.right = right.right;
    right.id = -1;
    if (left.right < symbols.size()) {
      symbols[left.right].left = at;
      offer(at, left.right);
    }
    if (at > 0) offer(left.left, at);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

}  // namespace oxbow::io
