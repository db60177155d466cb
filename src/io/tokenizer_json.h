// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: a tokenizer in one file, as the tokenizers library saves it. transformers 5
// writes this file alone, and reads it before any other where it is there.
//
//   {"added_tokens": [{"id": 1, "content": "</s>", "normalized": false}, ..],
//    "normalizer": {"type": "Precompiled", "precompiled_charsmap": BASE64} | {"type": "Sequence",
//    "normalizers": [..]}, "model": {"type": "BPE", "end_of_word_suffix": "</w>", "vocab": {TOKEN:
//    ID}, "merges": ["a b" | ["a", "b"], ..]}
//           | {"type": "Unigram", "vocab": [[PIECE, SCORE], ..]}}
//
// As in transformers 5, only these parts count: rules for words, padding and the unknown token are
// those of the tokenizer's class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "io/added_tokens.h"
#include "io/spiece_model.h"

namespace oxbow::io {

inline constexpr char kTokenizerJson[] = "tokenizer.json";

// Byte-level byte-pair encoding, as CLIP's.
struct BpeJson {
  std::vector<std::pair<std::string, int64_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // By rank.
  std::vector<AddedToken> added;
};

// A unigram model, as T5's. The index of a piece is its id.
struct UnigramJson {
  SpieceModel model;
  std::vector<AddedToken> added;
};

// Absent if the directory has no such file. kDataLoss for a file that is none; kInvalidArgument for
// one of another kind of tokenizer. Both name the file.
absl::StatusOr<std::optional<BpeJson>> ReadBpeJson(const std::filesystem::path& directory);
absl::StatusOr<std::optional<UnigramJson>> ReadUnigramJson(const std::filesystem::path& directory);

}  // namespace oxbow::io
