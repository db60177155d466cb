// SPDX-License-Identifier: Apache-2.0
// BERT's uncased WordPiece tokenizer, giving the ids that transformers' BertTokenizer gives.
//
//   text -> special tokens cut out -> control characters out, Chinese characters apart,
//           NFD without accents, lower case -> words and single punctuation marks
//        -> each word from the left in the longest pieces of the vocabulary, "##" before all but
//           the first; a word that has none, or over 100 characters, is [UNK]
//        -> [CLS] ids [SEP], cut to length keeping [SEP]
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "io/tokenizer_files.h"

namespace oxbow::io {

class BertTokenizer {
 public:
  // Reads DIRECTORY/vocab.txt, a token a line. `added` are special tokens that follow the
  // vocabulary, if it does not have them. kNotFound or kDataLoss, naming the file.
  static absl::StatusOr<BertTokenizer> Load(const std::filesystem::path& directory,
                                            const std::vector<std::string>& added = {});

  // At most `length` ids, not padded. Malformed UTF-8 is left out. Requires length >= 2.
  std::vector<int64_t> Encode(const std::string& text, int64_t length) const;

  int64_t pad_id() const { return pad_; }
  int64_t size() const { return size_; }  // One more than the largest id.

 private:
  BertTokenizer() = default;
  void AppendText(std::string_view text, std::vector<int64_t>& ids) const;
  void AppendWord(const std::vector<std::string>& characters, std::vector<int64_t>& ids) const;

  std::unordered_map<std::string, int64_t> vocabulary_;
  AddedTokens special_;
  int64_t begin_ = 0, end_ = 0, unknown_ = 0, pad_ = 0, size_ = 0;
};

}  // namespace oxbow::io
