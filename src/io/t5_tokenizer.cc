// SPDX-License-Identifier: Apache-2.0
#include "io/t5_tokenizer.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr uint64_t kT5FileBytesMax = 256 << 20;
constexpr char kSpace[] = "\xe2\x96\x81";  // U+2581
constexpr int64_t kExtraIds = 100;         // Every published T5 has as many.
constexpr double kUnknownPenalty = 10;     // Below the least likely piece, as sentencepiece.

// Requires valid UTF-8.
size_t CharacterBytes(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return std::min(size, text.size() - at);
}

bool IsSpaceAt(std::string_view text, size_t at, size_t bytes) {
  UChar32 character = 0;
  int32_t i = 0;
  const auto* const begin = reinterpret_cast<const uint8_t*>(text.data() + at);
  U8_NEXT(begin, i, static_cast<int32_t>(bytes), character);
  return character >= 0 && u_isUWhiteSpace(character) != 0;
}

std::string Sentinel(int64_t number) { return absl::StrCat("<extra_id_", number, ">"); }

absl::StatusOr<SpieceModel> ReadSpieceModel(const std::filesystem::path& path) {
  const absl::StatusOr<std::string> bytes = ReadFile(path, kT5FileBytesMax);
  if (absl::IsNotFound(bytes.status())) {
    return absl::NotFoundError(
        absl::StrCat("no tokenizer.json and no spiece.model in ", path.parent_path().string()));
  }
  OXBOW_RETURN_IF_ERROR(bytes.status());
  return ParseSpieceModel(*bytes, path.string());
}

}  // namespace

absl::StatusOr<T5Tokenizer> T5Tokenizer::Load(const std::filesystem::path& directory) {
  OXBOW_ASSIGN_OR_RETURN(std::optional<UnigramJson> json, ReadUnigramJson(directory));
  OXBOW_ASSIGN_OR_RETURN(
      const TokenizerSettings settings,
      ReadTokenizerSettings(directory,
                            {{"eos_token", "</s>"}, {"pad_token", "<pad>"}, {"unk_token", "<unk>"}},
                            json ? std::move(json->added) : std::vector<AddedToken>()));
  const std::filesystem::path path = directory / (json ? kTokenizerJson : "spiece.model");
  // Sentinels follow the pieces of spiece.model; tokenizer.json lists them.
  const int64_t sentinels = json ? 0 : settings.extra_ids.value_or(kExtraIds);
  if (!json) {
    json.emplace();
    OXBOW_ASSIGN_OR_RETURN(json->model, ReadSpieceModel(path));
  }
  std::vector<std::string> control;
  for (const SpieceModel::Piece& piece : json->model.pieces) {
    if (piece.control) control.push_back(piece.text);
  }
  T5Tokenizer tokenizer;
  absl::Status status = tokenizer.TakeModel(std::move(json->model), sentinels);
  if (status.ok()) status = tokenizer.TakeSpecials(settings, sentinels, control);
  if (!status.ok()) return Annotate(status, path.string());
  return tokenizer;
}

absl::Status T5Tokenizer::TakeModel(SpieceModel model, int64_t sentinels) {
  OXBOW_ASSIGN_OR_RETURN(charsmap_, Charsmap::Parse(model.charsmap));
  double least = std::numeric_limits<double>::infinity();
  for (const SpieceModel::Piece& piece : model.pieces) least = std::min(least, piece.score);
  unknown_score_ = least - kUnknownPenalty;
  for (int64_t i = sentinels - 1; i >= 0; --i) {  // The highest number first.
    model.pieces.push_back({.text = Sentinel(i), .score = 0});
  }
  for (SpieceModel::Piece& piece : model.pieces) {
    piece_bytes_max_ = std::max(piece_bytes_max_, piece.text.size());
    pieces_.insert_or_assign(std::move(piece.text), Piece{.id = size_, .score = piece.score});
    ++size_;
  }
  return absl::OkStatus();
}

absl::Status T5Tokenizer::TakeSpecials(const TokenizerSettings& settings, int64_t sentinels,
                                       const std::vector<std::string>& control) {
  std::vector<AddedToken> tokens = settings.listed;
  for (const auto& [key, text] : settings.named) {
    const auto is_it = [&text = text](const AddedToken& token) { return token.text == text; };
    const auto listed = std::find_if(tokens.begin(), tokens.end(), is_it);
    const auto found = pieces_.find(text);
    if (listed == tokens.end() && found == pieces_.end()) {
      return absl::DataLossError(absl::StrCat(key, " is no piece: '", text, "'"));
    }
    const int64_t id = listed != tokens.end() ? listed->id : found->second.id;
    (key == "eos_token" ? end_ : key == "pad_token" ? pad_ : unknown_) = id;
    tokens.push_back(settings.Token(text, id));
  }
  for (int64_t i = sentinels - 1; i >= 0; --i) {
    tokens.push_back(settings.Token(Sentinel(i), pieces_.at(Sentinel(i)).id));
  }
  for (const std::string& text : control) {
    tokens.push_back(settings.Token(text, pieces_.at(text).id));
  }
  for (const AddedToken& token : tokens) size_ = std::max(size_, token.id + 1);
  added_ = AddedTokens(std::move(tokens));
  return absl::OkStatus();
}

std::vector<int64_t> T5Tokenizer::Encode(const std::string& text, int64_t length) const {
  return TokenRow(Whole(text), end_, pad_, length);
}

std::vector<int64_t> T5Tokenizer::Whole(const std::string& text) const {
  std::vector<int64_t> ids;
  added_.Append(text, ids, [&](std::string_view piece) { AppendText(piece, ids); });
  return ids;
}

void T5Tokenizer::AppendText(std::string_view text, std::vector<int64_t>& ids) const {
  const std::string normal = charsmap_.Normalised(text);
  std::string word;  // From one U+2581 to the next or to white space.
  const auto end_word = [&] {
    if (!word.empty()) AppendPieces(word, ids);
    word.clear();
  };
  for (size_t i = 0, bytes = 0; i < normal.size(); i += bytes) {
    bytes = CharacterBytes(normal, i);
    if (IsSpaceAt(normal, i, bytes)) {
      end_word();
      continue;
    }
    const std::string_view character = std::string_view(normal).substr(i, bytes);
    if (character == kSpace) {
      end_word();
    } else if (word.empty()) {
      word = kSpace;
    }
    word += character;
  }
  end_word();
}

void T5Tokenizer::AppendPieces(std::string_view word, std::vector<int64_t>& ids) const {
  struct Best {
    double score = 0;
    size_t start = 0;
    int64_t id = -1;  // The piece that ends here; -1: none does.
  };
  std::vector<Best> best(word.size() + 1);
  const auto offer = [&](size_t start, size_t end, int64_t id, double score) {
    const double sum = best[start].score + score;
    if (best[end].id < 0 || sum > best[end].score) {
      best[end] = {.score = sum, .start = start, .id = id};
    }
  };
  std::string piece;
  for (size_t start = 0, step = 0; start < word.size(); start += step) {
    step = CharacterBytes(word, start);
    bool covered = false;
    piece.clear();
    for (size_t end = start; end < word.size() && piece.size() < piece_bytes_max_;) {
      const size_t bytes = CharacterBytes(word, end);
      piece += word.substr(end, bytes);
      end += bytes;
      const auto found = pieces_.find(piece);
      if (found == pieces_.end()) continue;
      offer(start, end, found->second.id, found->second.score);
      covered = covered || end == start + step;
    }
    if (!covered) offer(start, start + step, unknown_, unknown_score_);
  }
  const size_t first = ids.size();
  for (size_t end = word.size(); end > 0; end = best[end].start) {
    const bool run = best[end].id == unknown_ && ids.size() > first && ids.back() == unknown_;
    if (!run) ids.push_back(best[end].id);  // A run of unknown characters is one token.
  }
  std::reverse(ids.begin() + static_cast<ptrdiff_t>(first), ids.end());
}

}  // namespace oxbow::io
