// SPDX-License-Identifier: Apache-2.0
// The files of a tokenizer's directory that all kinds of tokenizers read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "io/spiece_model.h"

namespace oxbow::io {

// The tokens of a tokenizer directory that stand outside its algorithm: begin, end, padding, and
// whatever else tokenizer_config.json lists. Wherever one stands in a text it is cut out whole.
//
//   tokenizer_config.json    {"eos_token": "</s>" | {"content": "</s>", "normalized": false},
//                             "model_max_length": 77, "added_tokens_decoder": {"1": {...}}}
//   special_tokens_map.json  the same keys; read only where there is no added_tokens_decoder, and
//                            then stronger, as in transformers
struct AddedToken {
  std::string text;
  int64_t id = 0;
  bool normalized = false;  // Looked for in the normalised text instead of the text as given.
};

struct TokenizerSettings {
  std::map<std::string, std::string> named;  // "eos_token" -> "</s>"
  std::vector<AddedToken> listed;            // From added_tokens_decoder, each with its id.
  std::map<std::string, bool> normalized;    // Named tokens that say whether.
  std::optional<int64_t> model_max_length;
  std::optional<int64_t> extra_ids;  // T5: how many <extra_id_N> follow the vocabulary.

  // The token of that text with the given id, normalised if one of the files says so.
  AddedToken Token(const std::string& text, int64_t id) const;
};

// Reads both files, either of which may be absent. `named` starts as given. `listed` is what
// tokenizer.json lists, which counts where there is no added_tokens_decoder. kDataLoss names the
// file.
absl::StatusOr<TokenizerSettings> ReadTokenizerSettings(const std::filesystem::path& directory,
                                                        std::map<std::string, std::string> named,
                                                        std::vector<AddedToken> listed = {});

// A text's ids as its encoder takes them: cut so that `end` still fits, padded to `length` >= 1.
std::vector<int64_t> TokenRow(std::vector<int64_t> ids, int64_t end, int64_t pad, int64_t length);

// Cuts texts at tokens: at the leftmost one, and of several there the longest.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);  // Equal texts: the first counts.

  // Appends the ids of the tokens in a text, in order; `plain` appends those of each piece between
  // them, none of which is empty.
  void Append(std::string_view text, std::vector<int64_t>& ids,
              const std::function<void(std::string_view piece)>& plain) const;

 private:
  std::map<char, std::vector<AddedToken>> by_first_;  // Longest first.
};

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
