// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of words (arXiv:1508.07909) over UTF-8 bytes, as GPT-2, CLIP, Qwen and Mistral
// have it: each byte is a printable character, and neighbours are merged by rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "io/tokenizer_files.h"

namespace oxbow::io {

// Reads tokenizer.json, else vocab.json and merges.txt, which have no word_end. kNotFound,
// kDataLoss or kInvalidArgument (another kind of tokenizer), naming the file.
absl::StatusOr<BpeJson> ReadBpe(const std::filesystem::path& directory);

class BytePairs {
 public:
  BytePairs() = default;
  // kDataLoss for a merge of or into what is no token.
  static absl::StatusOr<BytePairs> Make(const BpeJson& model);

  std::optional<int64_t> IdOf(const std::string& token) const;

  // Appends the ids of a word, the last byte of which ends it. A byte that is no token is
  // `unknown`; where that is absent it is left out.
  void Append(std::string_view word, std::optional<int64_t> unknown,
              std::vector<int64_t>& ids) const;

  int64_t size() const { return size_; }  // One more than the largest id.

 private:
  // Two neighbouring symbols that become one.
  struct Merge {
    int64_t rank = 0;
    int64_t id = 0;
  };
  // One that went into its left neighbour has id -1.
  struct Symbol {
    int64_t id;
    size_t left, right;
  };

  void MergeAll(std::vector<Symbol>& symbols) const;

  std::unordered_map<std::string, int64_t> vocabulary_;
  std::unordered_map<uint64_t, Merge> merges_;  // By the two ids, 32 bits each.
  std::string word_end_;
  bool whole_words_ = false;
  int64_t size_ = 0;
};

}  // namespace oxbow::io
