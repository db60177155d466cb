// SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer_files.h"

#include <unicode/brkiter.h>
#include <unicode/locid.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr uint64_t kUnigram = 1;
constexpr uint64_t kControl = 3, kUserDefined = 4;

// A field of a protobuf message: a number, or the bytes of a string or message.
struct WireField {
  uint64_t number = 0;
  uint64_t integer = 0;    // Wire types 0 and 5.
  std::string_view bytes;  // Wire type 2.
};

// Reads the fields of a message one after the other.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  // False at the end, and from the first broken field on.
  bool Next(WireField& field) {
    if (bytes_.empty()) return false;
    ok_ = Read(field);
    return ok_;
  }
  bool ok() const { return ok_; }

 private:
  bool Read(WireField& field) {
    uint64_t key = 0;
    if (!ReadVarint(key)) return false;
    field = {.number = key >> 3};
    switch (key & 7) {
      case 0:
        return ReadVarint(field.integer);
      case 1:
        return Take(8, field.bytes);
      case 2: {
        uint64_t size = 0;
        return ReadVarint(size) && Take(size, field.bytes);
      }
      case 5: {
        std::string_view four;
        if (!Take(4, four)) return false;
        uint32_t value = 0;
        std::memcpy(&value, four.data(), 4);
        field.integer = value;
        return true;
      }
      default:
        return false;
    }
  }

  bool ReadVarint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool Take(uint64_t size, std::string_view& out) {
    if (size > bytes_.size()) return false;
    out = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

std::optional<SpieceModel::Piece> ParsePiece(std::string_view bytes) {
  SpieceModel::Piece piece;
  Fields fields(bytes);
  for (WireField field; fields.Next(field);) {
    if (field.number == 1) piece.text = std::string(field.bytes);
    if (field.number == 2) {
      const auto bits = static_cast<uint32_t>(field.integer);
      float score = 0;
      std::memcpy(&score, &bits, 4);
      piece.score = score;
    }
    if (field.number == 3) {
      piece.control = field.integer == kControl || field.integer == kUserDefined;
    }
  }
  if (!fields.ok() || piece.text.empty() || !std::isfinite(piece.score)) return std::nullopt;
  return piece;
}

absl::Status CheckTrainer(std::string_view bytes, const std::string& name) {
  Fields fields(bytes);
  for (WireField field; fields.Next(field);) {
    if (field.number == 3 && field.integer != kUnigram) {
      return absl::InvalidArgumentError(absl::StrCat(
          "not a unigram model (T5's tokenizer is one): model_type ", field.integer, ": ", name));
    }
  }
  if (fields.ok()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("broken trainer_spec: ", name));
}

constexpr size_t kGraphemeBytesMax = 6;  // From here on a grapheme is taken apart.

size_t OffsetOf(uint32_t unit) { return size_t{unit >> 10} << ((unit & (1u << 9)) >> 6); }
uint32_t LabelOf(uint32_t unit) { return unit & (0x80000000u | 0xffu); }

using Json = nlohmann::json;

constexpr uint64_t kAddedTokensBytesMax = 64 << 20;
constexpr int64_t kExtraIdsMax = 10'000;

// The file's object, or an empty one where there is no such file.
absl::StatusOr<Json> ReadTokensJson(const std::filesystem::path& path) {
  auto json = ReadJsonObject(path, kAddedTokensBytesMax);
  if (absl::IsNotFound(json.status())) return Json::object();
  return json;
}

// A token is a string, or an object with the string in "content".
std::optional<std::string> TextOf(const Json& json) {
  const Json& text = json.is_object() ? MemberOf(json, "content") : json;
  return text.is_string() ? std::optional(text.get<std::string>()) : std::nullopt;
}

bool IsNormalized(const Json& json) { return MemberOf(json, "normalized") == true; }

void ReadNamed(const Json& json, TokenizerSettings& settings) {
  for (auto& [key, text] : settings.named) {
    const Json& token = MemberOf(json, key.c_str());
    const std::optional<std::string> given = TextOf(token);
    if (!given.has_value()) continue;
    text = *given;
    if (token.is_object()) settings.normalized[text] = IsNormalized(token);
  }
}

absl::Status ReadListed(const Json& json, TokenizerSettings& settings) {
  for (const auto& [key, token] : json.items()) {
    int64_t id = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    const std::optional<std::string> text = TextOf(token);
    if (end.ec != std::errc() || end.ptr != key.data() + key.size() || id < 0 || id > INT32_MAX ||
        !text.has_value() || text->empty()) {
      return absl::DataLossError(
          absl::StrCat("added_tokens_decoder: not an id with a token: ", key));
    }
    settings.listed.push_back({.text = *text, .id = id, .normalized = IsNormalized(token)});
    settings.normalized[*text] = IsNormalized(token);
  }
  return absl::OkStatus();
}

constexpr uint64_t kTokenizerJsonBytesMax = 256 << 20;
constexpr int kTokenizerDepthMax = 64;  // A wrong value is shown, written by recursion.

absl::Status Damaged(const std::string& what) {
  return absl::DataLossError(absl::StrCat("not a tokenizer: ", what));
}

bool IsId(const Json& json) { return json.is_number_unsigned() && json <= INT32_MAX; }

absl::StatusOr<std::vector<AddedToken>> AddedOf(const Json& file) {
  std::vector<AddedToken> added;
  const Json& list = MemberOf(file, "added_tokens");
  if (!list.is_array() && !list.is_null()) return Damaged("added_tokens is no list");
  for (const Json& token : list) {
    const Json &id = MemberOf(token, "id"), &content = MemberOf(token, "content");
    const Json& normalized = MemberOf(token, "normalized");
    if (!IsId(id) || !content.is_string() || content.get_ref<const std::string&>().empty()) {
      return Damaged(absl::StrCat("added token ", added.size()));
    }
    added.push_back({.text = content.get<std::string>(),
                     .id = id.get<int64_t>(),
                     .normalized = normalized.is_boolean() && normalized.get<bool>()});
  }
  return added;
}

absl::StatusOr<std::pair<std::string, std::string>> MergeOf(const Json& json) {
  std::pair<std::string, std::string> merge;
  if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string()) {
    merge = {json[0].get<std::string>(), json[1].get<std::string>()};
  } else if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      merge = {text.substr(0, space), text.substr(space + 1)};
    }
  }
  if (merge.first.empty() || merge.second.empty()) return Damaged("a merge is no pair");
  return merge;
}

// The regular expression of the first part of a pre-tokenizer that splits by one.
std::string WordsOf(const Json& pre_tokenizer) {
  const Json& list = MemberOf(pre_tokenizer, "pretokenizers");
  for (const Json& one : list.is_array() ? list : Json::array({pre_tokenizer})) {
    if (MemberOf(one, "type") == "Split") return TextIn(MemberOf(one, "pattern"), "Regex");
  }
  return "";
}

absl::StatusOr<BpeJson> BpeOf(const Json& file) {
  BpeJson bpe;
  const Json& model = MemberOf(file, "model");
  bpe.word_end = TextIn(model, "end_of_word_suffix");
  bpe.whole_words = MemberOf(model, "ignore_merges") == true;
  bpe.normalizer = TextIn(MemberOf(file, "normalizer"), "type");
  bpe.words = WordsOf(MemberOf(file, "pre_tokenizer"));
  const Json &vocabulary = MemberOf(model, "vocab"), &merges = MemberOf(model, "merges");
  if (!vocabulary.is_object() || !merges.is_array())
    return Damaged("model without vocab or merges");
  for (const auto& [token, id] : vocabulary.items()) {
    if (!IsId(id)) return Damaged(absl::StrCat("the id of ", token));
    bpe.vocabulary.emplace_back(token, id.get<int64_t>());
  }
  for (const Json& pair : merges) {
    OXBOW_ASSIGN_OR_RETURN(auto merge, MergeOf(pair));
    bpe.merges.push_back(std::move(merge));
  }
  OXBOW_ASSIGN_OR_RETURN(bpe.added, AddedOf(file));
  return bpe;
}

// The table of the first normalizer that has one, or none.
absl::StatusOr<std::string> CharsmapOf(const Json& normalizer) {
  const Json& list = MemberOf(normalizer, "normalizers");
  for (const Json& one : list.is_array() ? list : Json::array({normalizer})) {
    if (MemberOf(one, "type") != "Precompiled") continue;
    const Json& table = MemberOf(one, "precompiled_charsmap");
    std::string bytes;
    if (!table.is_string() || !absl::Base64Unescape(table.get_ref<const std::string&>(), &bytes)) {
      return Damaged("precompiled_charsmap");
    }
    return bytes;
  }
  return std::string();
}

absl::StatusOr<UnigramJson> UnigramOf(const Json& file) {
  UnigramJson unigram;
  const Json& pieces = MemberOf(MemberOf(file, "model"), "vocab");
  if (!pieces.is_array() || pieces.empty()) return Damaged("model without vocab");
  for (const Json& piece : pieces) {
    if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() || !piece[1].is_number() ||
        !std::isfinite(piece[1].get<double>())) {
      return Damaged(absl::StrCat("piece ", unigram.model.pieces.size()));
    }
    unigram.model.pieces.push_back(
        {.text = piece[0].get<std::string>(), .score = piece[1].get<double>()});
  }
  OXBOW_ASSIGN_OR_RETURN(unigram.model.charsmap, CharsmapOf(MemberOf(file, "normalizer")));
  OXBOW_ASSIGN_OR_RETURN(unigram.added, AddedOf(file));
  return unigram;
}

// `read` makes a Result of the file's object if its model is of that type.
template <typename Result>
absl::StatusOr<std::optional<Result>> Read(const std::filesystem::path& directory, const char* type,
                                           absl::StatusOr<Result> (*read)(const Json&)) {
  const std::filesystem::path path = directory / kTokenizerJson;
  auto text = ReadFile(path, kTokenizerJsonBytesMax);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  OXBOW_RETURN_IF_ERROR(text.status());
  if (IsNestedBeyond(*text, kTokenizerDepthMax)) {
    return absl::DataLossError(absl::StrCat("not a tokenizer: nested more than ",
                                            kTokenizerDepthMax, " deep: ", path.string()));
  }
  const Json file = ParseJson(*text);
  if (!file.is_object()) return Annotate(Damaged("no JSON object"), path.string());
  const Json& found = MemberOf(MemberOf(file, "model"), "type");
  if (found != type) {
    return absl::InvalidArgumentError(
        absl::StrCat("its model is ", JsonText(found), ", not ", type, ": ", path.string()));
  }
  absl::StatusOr<Result> result = read(file);
  if (!result.ok()) return Annotate(result.status(), path.string());
  return std::optional<Result>(*std::move(result));
}

}  // namespace

icu::UnicodeString Utf16(std::string_view text) {
  return icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

std::string Utf8(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

icu::UnicodeString InForm(const icu::Normalizer2* (*form)(UErrorCode& error),
                          const icu::UnicodeString& text) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* const normalizer = form(error);
  OXBOW_CHECK(U_SUCCESS(error)) << u_errorName(error);
  icu::UnicodeString result = normalizer->normalize(text, error);
  OXBOW_CHECK(U_SUCCESS(error)) << u_errorName(error);
  return result;
}

absl::StatusOr<SpieceModel> ParseSpieceModel(std::string_view bytes, const std::string& name) {
  SpieceModel model;
  Fields fields(bytes);
  for (WireField field; fields.Next(field);) {
    if (field.number == 1) {
      std::optional<SpieceModel::Piece> piece = ParsePiece(field.bytes);
      if (!piece.has_value()) {
        return absl::DataLossError(absl::StrCat("broken piece ", model.pieces.size(), ": ", name));
      }
      model.pieces.push_back(*std::move(piece));
    } else if (field.number == 2) {
      const absl::Status status = CheckTrainer(field.bytes, name);
      if (!status.ok()) return status;
    } else if (field.number == 3) {
      Fields normalizer(field.bytes);
      for (WireField part; normalizer.Next(part);) {
        if (part.number == 2) model.charsmap = std::string(part.bytes);
      }
      if (!normalizer.ok()) return absl::DataLossError("broken normalizer_spec: " + name);
    }
  }
  if (!fields.ok() || model.pieces.empty()) {
    return absl::DataLossError(
        absl::StrCat("not a sentencepiece model, or cut short (copy it again): ", name));
  }
  return model;
}

absl::StatusOr<Charsmap> Charsmap::Parse(std::string_view bytes) {
  Charsmap map;
  if (bytes.empty()) return map;
  uint32_t trie_bytes = 0;
  if (bytes.size() >= 4) std::memcpy(&trie_bytes, bytes.data(), 4);
  if (bytes.size() < 4 || trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - 4) {
    return absl::DataLossError("broken precompiled_charsmap");
  }
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), bytes.data() + 4, trie_bytes);
  map.replacements_ = std::string(bytes.substr(4 + trie_bytes));
  return map;
}

std::optional<std::string_view> Charsmap::Find(std::string_view key) const {
  if (units_.empty()) return std::nullopt;
  size_t position = OffsetOf(units_[0]);
  for (const char character : key) {
    const auto byte = static_cast<unsigned char>(character);
    position ^= byte;
    if (byte == 0 || position >= units_.size() || LabelOf(units_[position]) != byte) break;
    const bool has_value = ((units_[position] >> 8) & 1) != 0;
    position ^= OffsetOf(units_[position]);
    if (!has_value) continue;
    if (position >= units_.size()) break;
    const size_t start = units_[position] & 0x7fffffffu;
    if (start >= replacements_.size()) break;
    const size_t end = replacements_.find('\0', start);
    return std::string_view(replacements_).substr(start, end - start);
  }
  return std::nullopt;
}

std::string Charsmap::Normalised(std::string_view text) const {
  const icu::UnicodeString source = Utf16(text);
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> graphemes(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), error));
  OXBOW_CHECK(U_SUCCESS(error)) << u_errorName(error);
  graphemes->setText(source);
  std::string result;
  for (int32_t start = 0, end = graphemes->next(); end != icu::BreakIterator::DONE;
       start = end, end = graphemes->next()) {
    const std::string grapheme = Utf8(source.tempSubStringBetween(start, end));
    if (grapheme.size() < kGraphemeBytesMax) {
      if (const auto replacement = Find(grapheme); replacement.has_value()) {
        result += *replacement;
        continue;
      }
    }
    for (int32_t i = start; i < end; i = source.moveIndex32(i, 1)) {
      const std::string character = Utf8(icu::UnicodeString(source.char32At(i)));
      result += Find(character).value_or(character);
    }
  }
  return result;
}

AddedToken TokenizerSettings::Token(const std::string& text, int64_t id) const {
  const auto found = normalized.find(text);
  return {.text = text, .id = id, .normalized = found != normalized.end() && found->second};
}

absl::StatusOr<TokenizerSettings> ReadTokenizerSettings(const std::filesystem::path& directory,
                                                        std::map<std::string, std::string> named,
                                                        std::vector<AddedToken> listed) {
  TokenizerSettings settings;
  settings.named = std::move(named);
  const std::filesystem::path path = directory / "tokenizer_config.json";
  OXBOW_ASSIGN_OR_RETURN(const Json config, ReadTokensJson(path));
  ReadNamed(config, settings);
  const auto integer = [&](const char* key) -> std::optional<int64_t> {
    const Json& value = MemberOf(config, key);
    return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
  };
  settings.model_max_length = integer("model_max_length");
  settings.extra_ids = integer("extra_ids");
  if (settings.extra_ids.value_or(0) < 0 || settings.extra_ids.value_or(0) > kExtraIdsMax) {
    return absl::DataLossError(
        absl::StrCat("extra_ids is no count: ", *settings.extra_ids, ": ", path.string()));
  }
  if (const Json& decoder = MemberOf(config, "added_tokens_decoder"); decoder.is_object()) {
    const absl::Status status = ReadListed(decoder, settings);
    if (!status.ok()) return Annotate(status, path.string());
    return settings;
  }
  for (const AddedToken& token : listed) settings.normalized[token.text] = token.normalized;
  settings.listed = std::move(listed);
  OXBOW_ASSIGN_OR_RETURN(const Json special, ReadTokensJson(directory / "special_tokens_map.json"));
  ReadNamed(special, settings);
  return settings;
}

std::vector<int64_t> TokenRow(std::vector<int64_t> ids, int64_t end, int64_t pad, int64_t length) {
  OXBOW_CHECK(length >= 1) << length;
  const auto size = static_cast<size_t>(length);
  if (ids.size() > size - 1) ids.resize(size - 1);
  ids.push_back(end);
  ids.resize(size, pad);
  return ids;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) {
  for (AddedToken& token : tokens) {
    if (!token.text.empty()) by_first_[token.text.front()].push_back(std::move(token));
  }
  for (auto& [first, list] : by_first_) {
    std::stable_sort(list.begin(), list.end(), [](const AddedToken& a, const AddedToken& b) {
      return a.text.size() > b.text.size();
    });
  }
}

void AddedTokens::Append(std::string_view text, std::vector<int64_t>& ids,
                         const std::function<void(std::string_view piece)>& plain) const {
  size_t begin = 0;  // Start of the text since the last token.
  const auto end_plain = [&](size_t end) {
    if (end > begin) plain(text.substr(begin, end - begin));
  };
  for (size_t i = 0; i < text.size();) {
    const AddedToken* token = nullptr;
    if (const auto list = by_first_.find(text[i]); list != by_first_.end()) {
      for (const AddedToken& candidate : list->second) {
        if (!text.substr(i).starts_with(candidate.text)) continue;
        token = &candidate;
        break;
      }
    }
    if (token == nullptr) {
      ++i;
      continue;
    }
    end_plain(i);
    ids.push_back(token->id);
    begin = i += token->text.size();
  }
  end_plain(text.size());
}

absl::StatusOr<std::optional<BpeJson>> ReadBpeJson(const std::filesystem::path& directory) {
  OXBOW_ASSIGN_OR_RETURN(std::optional<BpeJson> bpe, Read<BpeJson>(directory, "BPE", BpeOf));
  if (bpe) bpe->path = directory / kTokenizerJson;
  return bpe;
}

absl::StatusOr<std::optional<UnigramJson>> ReadUnigramJson(const std::filesystem::path& directory) {
  return Read<UnigramJson>(directory, "Unigram", UnigramOf);
}

}  // namespace oxbow::io
