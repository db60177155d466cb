// SPDX-License-Identifier: Apache-2.0
// T5's tokenizer, giving the ids that transformers' T5Tokenizer gives.
//
//   text -> special tokens cut out -> characters normalised by the model's table
//        -> words between white space, each with U+2581 in front
//        -> the pieces of the vocabulary with the largest sum of log-probabilities (unigram model,
//           arXiv:1804.10959); what no piece covers is one unknown token
//        -> ids, cut to length - 1, EOS, padded
//
// transformers runs the tokenizers library, not sentencepiece, over spiece.model. They differ in
// how they normalise (see io/tokenizer_files.h) and in special tokens within a text; the models'
// published pipelines use the former.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "io/tokenizer_files.h"

namespace oxbow::io {

class T5Tokenizer {
 public:
  // Reads tokenizer.json, else spiece.model, of a tokenizer directory, and, where present,
  // tokenizer_config.json and special_tokens_map.json. kNotFound, kDataLoss or kInvalidArgument
  // (another kind of tokenizer), naming the file.
  static absl::StatusOr<T5Tokenizer> Load(const std::filesystem::path& directory);

  // Exactly `length` ids. Malformed UTF-8 becomes U+FFFD. Requires length >= 1.
  std::vector<int64_t> Encode(const std::string& text, int64_t length) const;

  // The ids that the whole text has, with the last.
  int64_t Count(const std::string& text) const {
    return static_cast<int64_t>(Whole(text).size()) + 1;
  }

  int64_t end_id() const { return end_; }
  int64_t size() const { return size_; }  // One more than the largest id.

 private:
  struct Piece {
    int64_t id = 0;
    double score = 0;
  };

  T5Tokenizer() = default;
  std::vector<int64_t> Whole(const std::string& text) const;  // Without the last id.
  // `sentinels`: how many <extra_id_N> follow the model's pieces.
  absl::Status TakeModel(SpieceModel model, int64_t sentinels);
  // `control`: pieces of the model that are special tokens by themselves.
  absl::Status TakeSpecials(const TokenizerSettings& settings, int64_t sentinels,
                            const std::vector<std::string>& control);
  void AppendText(std::string_view text, std::vector<int64_t>& ids) const;
  // A word or a part of one that begins with U+2581 and holds no other.
  void AppendPieces(std::string_view word, std::vector<int64_t>& ids) const;

  Charsmap charsmap_;
  std::unordered_map<std::string, Piece> pieces_;
  size_t piece_bytes_max_ = 0;
  double unknown_score_ = 0;
  AddedTokens added_;
  int64_t end_ = 1, pad_ = 0, unknown_ = 2, size_ = 0;
};

}  // namespace oxbow::io
