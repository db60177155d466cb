#include "io/spiece_model.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

namespace oxbow::io {
namespace {

constexpr uint64_t kUnigram = 1;

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
    if (field.number == 35 && field.integer != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("models that fall back to bytes are not supported: ", name));
    }
  }
  if (fields.ok()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("broken trainer_spec: ", name));
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

}  // namespace oxbow::io
