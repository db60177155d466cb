// SPDX-License-Identifier: Apache-2.0
// CLIP's byte-level BPE tokenizer, giving the ids that transformers' CLIPTokenizer gives.
//
//   text -> special tokens cut out -> NFC, lower case -> special tokens that are looked for here
//        -> words: 's|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+
//        -> UTF-8 bytes as printable characters, the last with "</w>", merged by rank
//        -> BOS ids EOS, cut to length keeping EOS, padded
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "io/byte_pairs.h"
#include "io/tokenizer_files.h"

namespace oxbow::io {

class ClipTokenizer {
 public:
  // Reads tokenizer.json, else vocab.json and merges.txt, of a tokenizer directory, and, where
  // present, special_tokens_map.json and tokenizer_config.json. kNotFound, kDataLoss or
  // kInvalidArgument (another kind of tokenizer), naming the file.
  static absl::StatusOr<ClipTokenizer> Load(const std::filesystem::path& directory);

  // Exactly `length` ids. Malformed UTF-8 becomes U+FFFD. Requires length >= 2.
  std::vector<int64_t> Encode(const std::string& text, int64_t length) const;

  // The ids that the whole text has, with the first and the last.
  int64_t Count(const std::string& text) const {
    return static_cast<int64_t>(Whole(text).size()) + 1;
  }

  // The words of `text` that are several tokens, in lower case. A small vocabulary, which has a
  // token for each word that its model was trained on, does not know them.
  std::vector<std::string> SplitWords(const std::string& text) const;

  int64_t model_max_length() const { return model_max_length_; }
  int64_t end_id() const { return end_; }
  int64_t size() const { return size_; }  // One more than the largest id.

 private:
  ClipTokenizer() = default;
  std::vector<int64_t> Whole(const std::string& text) const;  // Without the last id.
  // `added`: the tokens that tokenizer.json lists.
  absl::Status ReadSpecials(const std::filesystem::path& directory, std::vector<AddedToken> added);
  void AppendText(std::string_view text, std::vector<int64_t>& ids) const;
  static std::vector<std::string> WordsOf(std::string_view normal);

  BytePairs pairs_;
  AddedTokens added_;             // In the text as given.
  AddedTokens added_normalised_;  // In the text in lower case.
  int64_t begin_ = 0, end_ = 0, unknown_ = 0, pad_ = 0, size_ = 0;
  int64_t model_max_length_ = 77;
};

}  // namespace oxbow::io
