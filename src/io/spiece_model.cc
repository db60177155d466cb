// SPDX-License-Identifier: Apache-2.0
#include "io/spiece_model.h"

#include <unicode/brkiter.h>
#include <unicode/locid.h>
#include <unicode/unistr.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::io {
namespace {

constexpr uint64_t kUnigram = 1;
constexpr uint64_t kControl = 3, kUserDefined = 4;

// A field of a protobuf message: a number, or the bytes of a string or message.
struct Field {
  uint64_t number = 0;
  uint64_t integer = 0;    // Wire types 0 and 5.
  std::string_view bytes;  // Wire type 2.
};

// Reads the fields of a message one after the other.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  // False at the end, and from the first broken field on.
  bool Next(Field& field) {
    if (bytes_.empty()) return false;
    ok_ = Read(field);
    return ok_;
  }
  bool ok() const { return ok_; }

 private:
  bool Read(Field& field) {
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
  for (Field field; fields.Next(field);) {
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
  for (Field field; fields.Next(field);) {
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

std::string PieceUtf8(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

}  // namespace

absl::StatusOr<SpieceModel> ParseSpieceModel(std::string_view bytes, const std::string& name) {
  SpieceModel model;
  Fields fields(bytes);
  for (Field field; fields.Next(field);) {
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
      for (Field part; normalizer.Next(part);) {
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
  const auto piece = icu::StringPiece(text.data(), static_cast<int32_t>(text.size()));
  const icu::UnicodeString source = icu::UnicodeString::fromUTF8(piece);
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> graphemes(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), error));
  OXBOW_CHECK(U_SUCCESS(error)) << u_errorName(error);
  graphemes->setText(source);
  std::string result;
  for (int32_t start = 0, end = graphemes->next(); end != icu::BreakIterator::DONE;
       start = end, end = graphemes->next()) {
    const std::string grapheme = PieceUtf8(source.tempSubStringBetween(start, end));
    if (grapheme.size() < kGraphemeBytesMax) {
      if (const auto replacement = Find(grapheme); replacement.has_value()) {
        result += *replacement;
        continue;
      }
    }
    for (int32_t i = start; i < end; i = source.moveIndex32(i, 1)) {
      const std::string character = PieceUtf8(icu::UnicodeString(source.char32At(i)));
      result += Find(character).value_or(character);
    }
  }
  return result;
}

}  // namespace oxbow::io
