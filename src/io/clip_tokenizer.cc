#include "io/clip_tokenizer.h"

#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

using Json = nlohmann::json;

constexpr char kBegin[] = "<|startoftext|>";
constexpr char kEnd[] = "<|endoftext|>";
constexpr char kWordEnd[] = "</w>";
constexpr uint64_t kFileBytesMax = 64 << 20;

std::string Utf8(UChar32 character) {
  std::string out;
  icu::UnicodeString(character).toUTF8String(out);
  return out;
}

bool IsPrintableByte(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// Each byte as a printable character (GPT-2's table): itself, or from U+0100 on for the others.
const std::array<std::string, 256>& ByteCharacters() {
  static const auto* const table = [] {
    auto* characters = new std::array<std::string, 256>;
    UChar32 next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      (*characters)[static_cast<size_t>(byte)] = Utf8(IsPrintableByte(byte) ? byte : next++);
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
icu::UnicodeString Normalised(std::string_view text) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(error);
  OXBOW_CHECK(U_SUCCESS(error)) << u_errorName(error);
  const auto piece = icu::StringPiece(text.data(), static_cast<int32_t>(text.size()));
  const icu::UnicodeString composed = nfc->normalize(icu::UnicodeString::fromUTF8(piece), error);
  OXBOW_CHECK(U_SUCCESS(error)) << u_errorName(error);
  icu::UnicodeString lower;
  for (int32_t i = 0; i < composed.length(); i = composed.moveIndex32(i, 1)) {
    lower.append(icu::UnicodeString(composed.char32At(i)).toLower(icu::Locale::getRoot()));
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

absl::StatusOr<Json> ReadJson(const std::filesystem::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::DataLossError(absl::StrCat("not a JSON object: ", path.string()));
  }
  return json;
}

// A special token is a string, or an object with the string in "content".
std::string TokenOf(const Json& json, const char* key, const std::string& fallback) {
  if (!json.contains(key)) return fallback;
  const Json& value = json[key];
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return fallback;
}

}  // namespace

absl::StatusOr<ClipTokenizer> ClipTokenizer::Load(const std::filesystem::path& directory) {
  ClipTokenizer tokenizer;
  OXBOW_RETURN_IF_ERROR(tokenizer.ReadVocabulary(directory));
  OXBOW_RETURN_IF_ERROR(tokenizer.ReadMerges(directory));
  OXBOW_RETURN_IF_ERROR(tokenizer.ReadSpecials(directory));
  return tokenizer;
}

absl::Status ClipTokenizer::ReadVocabulary(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "vocab.json";
  OXBOW_ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  for (const auto& [token, id] : json.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      return absl::DataLossError(absl::StrCat("token id is no id: ", token, ": ", path.string()));
    }
    vocabulary_[token] = id.get<int64_t>();
  }
  return absl::OkStatus();
}

absl::Status ClipTokenizer::ReadMerges(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "merges.txt";
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
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
    ranks_.emplace(line, static_cast<int64_t>(ranks_.size()));
  }
  return absl::OkStatus();
}

absl::Status ClipTokenizer::ReadSpecials(const std::filesystem::path& directory) {
  std::map<std::string, std::string> token = {
      {"bos_token", kBegin}, {"eos_token", kEnd}, {"unk_token", kEnd}, {"pad_token", kEnd}};
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const auto json = ReadJson(directory / file);
    if (absl::IsNotFound(json.status())) continue;
    if (!json.ok()) return json.status();
    for (auto& [key, text] : token) text = TokenOf(*json, key.c_str(), text);
    if (json->contains("model_max_length") && (*json)["model_max_length"].is_number_integer()) {
      model_max_length_ = (*json)["model_max_length"].get<int64_t>();
    }
  }
  for (const auto& [key, text] : token) {
    const auto found = vocabulary_.find(text);
    if (text.empty() || found == vocabulary_.end()) {
      return absl::DataLossError(
          absl::StrCat(key, " is not in vocab.json: '", text, "': ", directory.string()));
    }
    specials_.emplace_back(text, found->second);
  }
  begin_ = vocabulary_.at(token["bos_token"]);
  end_ = vocabulary_.at(token["eos_token"]);
  unknown_ = vocabulary_.at(token["unk_token"]);
  pad_ = vocabulary_.at(token["pad_token"]);
  std::sort(specials_.begin(), specials_.end(),
            [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  return absl::OkStatus();
}

std::vector<int64_t> ClipTokenizer::Encode(const std::string& text, int64_t length) const {
  OXBOW_CHECK(length >= 2) << length;
  std::vector<int64_t> ids = {begin_};
  size_t plain = 0;  // Start of the text since the last special token.
  for (size_t i = 0; i < text.size();) {
    const auto special = std::find_if(specials_.begin(), specials_.end(), [&](const auto& s) {
      return text.compare(i, s.first.size(), s.first) == 0;
    });
    if (special == specials_.end()) {
      ++i;
      continue;
    }
    AppendText(std::string_view(text).substr(plain, i - plain), ids);
    ids.push_back(special->second);
    plain = i += special->first.size();
  }
  AppendText(std::string_view(text).substr(plain), ids);
  const auto size = static_cast<size_t>(length);
  if (ids.size() > size - 1) ids.resize(size - 1);
  ids.push_back(end_);
  ids.resize(size, pad_);
  return ids;
}

void ClipTokenizer::AppendText(std::string_view text, std::vector<int64_t>& ids) const {
  const icu::UnicodeString normal = Normalised(text);
  for (int32_t start = 0; start < normal.length();) {
    if (KindOf(normal.char32At(start)) == Kind::kSpace) {
      start = normal.moveIndex32(start, 1);
      continue;
    }
    const int32_t end = WordEndAt(normal, start);
    std::string word;
    normal.tempSubStringBetween(start, end).toUTF8String(word);
    AppendWord(word, ids);
    start = end;
  }
}

void ClipTokenizer::AppendWord(std::string_view word, std::vector<int64_t>& ids) const {
  std::vector<std::string> symbols;
  for (const char byte : word)
    symbols.push_back(ByteCharacters()[static_cast<unsigned char>(byte)]);
  symbols.back() += kWordEnd;
  while (symbols.size() > 1) {
    int64_t best = INT64_MAX;
    std::string pair;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks_.find(symbols[i] + " " + symbols[i + 1]);
      if (found == ranks_.end() || found->second >= best) continue;
      best = found->second;
      pair = found->first;
    }
    if (best == INT64_MAX) break;
    std::vector<std::string> merged;  // Every occurrence, from the left.
    for (size_t i = 0; i < symbols.size(); ++i) {
      const bool here = i + 1 < symbols.size() && symbols[i] + " " + symbols[i + 1] == pair;
      merged.push_back(here ? symbols[i] + symbols[i + 1] : symbols[i]);
      if (here) ++i;
    }
    symbols = std::move(merged);
  }
  for (const std::string& symbol : symbols) {
    const auto found = vocabulary_.find(symbol);
    ids.push_back(found == vocabulary_.end() ? unknown_ : found->second);
  }
}

std::map<std::string, std::string> ClipTokenizerFiles(const std::vector<std::string>& merges,
                                                      int64_t model_max_length) {
  std::vector<std::string> tokens;
  for (const bool printable : {true, false}) {  // The order of CLIP's own vocabulary.
    for (int byte = 0; byte < 256; ++byte) {
      if (IsPrintableByte(byte) == printable) {
        tokens.push_back(ByteCharacters()[static_cast<size_t>(byte)]);
      }
    }
  }
  for (size_t i = 0; i < 256; ++i) tokens.push_back(tokens[i] + kWordEnd);
  std::string merge_lines = "#version: 0.2\n";
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    OXBOW_CHECK(space != std::string::npos) << "merge is not a pair: " << merge;
    tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
    merge_lines += merge + "\n";
  }
  tokens.insert(tokens.end(), {kBegin, kEnd});
  nlohmann::ordered_json vocabulary;
  for (size_t i = 0; i < tokens.size(); ++i) vocabulary[tokens[i]] = i;
  const nlohmann::ordered_json special = {
      {"bos_token", kBegin}, {"eos_token", kEnd}, {"pad_token", kEnd}, {"unk_token", kEnd}};
  nlohmann::ordered_json config = special;
  config["tokenizer_class"] = "CLIPTokenizer";
  config["model_max_length"] = model_max_length;
  config["do_lower_case"] = true;
  return {{"vocab.json", vocabulary.dump() + "\n"},
          {"merges.txt", merge_lines},
          {"special_tokens_map.json", special.dump(2) + "\n"},
          {"tokenizer_config.json", config.dump(2) + "\n"}};
}

}  // namespace oxbow::io
