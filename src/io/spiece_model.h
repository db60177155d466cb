// SPDX-License-Identifier: Apache-2.0
// A sentencepiece model file (spiece.model): the pieces of a unigram vocabulary with their
// log-probabilities, and the table that normalises text before it is cut into them.
//
//   ModelProto (protobuf wire format)
//     1  pieces           repeated {1 piece: string, 2 score: float, 3 type: enum}
//     2  trainer_spec     {3 model_type: enum, 1 = unigram}
//     3  normalizer_spec  {2 precompiled_charsmap: bytes}
//
// Models that fall back to bytes (trainer_spec 35; UMT5's is one) are read like others:
// transformers never falls back, so an unknown character is the unknown token.
//
// https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::io {

struct SpieceModel {
  struct Piece {
    std::string text;  // UTF-8; U+2581 stands for a space.
    double score = 0;
    bool control = false;  // Or user-defined, as </s>: cut out of a text whole.
  };
  std::vector<Piece> pieces;  // The index is the token id.
  std::string charsmap;       // Empty: text is taken as it is. See Charsmap.
};

// kDataLoss, naming `name`, for bytes that are no such file; kInvalidArgument for one that is not a
// unigram model.
absl::StatusOr<SpieceModel> ParseSpieceModel(std::string_view bytes, const std::string& name);

// sentencepiece's table of character normalisation ("precompiled_charsmap"): which short strings of
// a text become which others, NFKC for the most part.
//
//   u32 LE  T           bytes of the trie, a multiple of 4
//   T bytes             double-array trie of u32 LE units, from a string to a position
//   the rest            replacements in UTF-8, each ended by a zero byte
//
// A unit holds an offset (bits 10 to 30, times 256 where bit 9 is set), whether a value hangs below
// it (bit 8) and its own label (bits 0 to 7, and 31); a value is the lower 31 bits of its unit.
// Walking a byte c goes from position p to p ^ c, whose label must be c, and on by its offset.
class Charsmap {
 public:
  Charsmap() = default;                                           // Leaves every text as it is.
  static absl::StatusOr<Charsmap> Parse(std::string_view bytes);  // kDataLoss.

  // The text with every listed string replaced, as the tokenizers library does: a whole grapheme of
  // under six bytes by the entry that is its shortest prefix, and otherwise character by character.
  // (sentencepiece itself takes the longest match at each place: marks after a character that
  // stands for several are kept there and dropped here.) Malformed UTF-8 becomes U+FFFD.
  std::string Normalised(std::string_view text) const;

 private:
  std::optional<std::string_view> Find(std::string_view key) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace oxbow::io
