// SPDX-License-Identifier: Apache-2.0
// The files of a tokenizer's directory that all kinds of tokenizers read.
#pragma once

#include <unicode/normalizer2.h>
#include <unicode/unistr.h>

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

namespace oxbow::io {

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

// Text for ICU, which counts in units of UTF-16, and back. Malformed UTF-8 becomes U+FFFD.
icu::UnicodeString Utf16(std::string_view text);
std::string Utf8(const icu::UnicodeString& text);
// The text in a normal form: icu::Normalizer2::getNFCInstance and the like.
icu::UnicodeString InForm(const icu::Normalizer2* (*form)(UErrorCode& error),
                          const icu::UnicodeString& text);

// tokenizer.json: a tokenizer in one file, as the tokenizers library saves it. transformers 5
// writes this file alone, and reads it before any other where it is there.
//
//   {"added_tokens": [{"id": 1, "content": "</s>", "normalized": false}, ..],
//    "normalizer": {"type": "Precompiled", "precompiled_charsmap": BASE64} | {"type": "Sequence",
//    "normalizers": [..]}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type":
//    "Split", "pattern": {"Regex": ..}}, {"type": "ByteLevel"}]}, "model": {"type": "BPE",
//    "end_of_word_suffix": "</w>", "ignore_merges": false, "vocab": {TOKEN: ID}, "merges": ["a b" |
//    ["a", "b"], ..]}
//           | {"type": "Unigram", "vocab": [[PIECE, SCORE], ..]}}
//
// As in transformers 5, only these parts count: rules for words, padding and the unknown token are
// those of the tokenizer's class.
inline constexpr char kTokenizerJson[] = "tokenizer.json";

// Byte-level byte-pair encoding, as CLIP's and Qwen's.
struct BpeJson {
  std::filesystem::path path;  // The file that says so.
  std::string word_end;        // Behind the last character of a word: "</w>" in CLIP's.
  bool whole_words = false;    // A word that is a token is not merged (ignore_merges).
  std::string normalizer;      // Its type; empty: none.
  std::string words;           // Regular expression of the words; empty: none is given.
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
