// A sentencepiece model file (spiece.model): the pieces of a unigram vocabulary with their
// log-probabilities, and the table that normalises text before it is cut into them.
//
//   ModelProto (protobuf wire format)
//     1  pieces           repeated {1 piece: string, 2 score: float, 3 type: enum}
//     2  trainer_spec     {3 model_type: enum, 1 = unigram; 35 byte_fallback: bool}
//     3  normalizer_spec  {2 precompiled_charsmap: bytes}
//
// https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::io {

struct SpieceModel {
  struct Piece {
    std::string text;  // UTF-8; U+2581 stands for a space.
    double score = 0;
  };
  std::vector<Piece> pieces;  // The index is the token id.
  std::string charsmap;       // Empty: text is taken as it is. See io/charsmap.h.
};

// kDataLoss, naming `name`, for bytes that are no such file; kInvalidArgument for one that is not a
// unigram model or that falls back to bytes.
absl::StatusOr<SpieceModel> ParseSpieceModel(std::string_view bytes, const std::string& name);

}  // namespace oxbow::io
