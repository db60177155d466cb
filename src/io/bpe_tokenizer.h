// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE tokenizers of language models that encode prompts, giving the ids that
// transformers gives.
//
//   text -> special tokens cut out -> NFC where the tokenizer says so -> words (io/bpe_words.h)
//        -> UTF-8 bytes merged by rank
//
// Qwen2's has the rules of its class in transformers, whatever tokenizer.json says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "io/bpe_words.h"
#include "io/byte_pairs.h"
#include "io/tokenizer_files.h"

namespace oxbow::io {

class BpeTokenizer {
 public:
  // Reads tokenizer.json, else vocab.json and merges.txt, of a tokenizer directory, and, where
  // present, tokenizer_config.json, special_tokens_map.json and chat_template.jinja. kNotFound,
  // kDataLoss or kInvalidArgument (another kind of tokenizer, or of words), naming the file.
  static absl::StatusOr<BpeTokenizer> Load(const std::filesystem::path& directory);

  // The ids of a text, none in front and none behind. Malformed UTF-8 becomes U+FFFD.
  std::vector<int64_t> Ids(const std::string& text) const;

  // "bos_token" and "pad_token" as the files name them; "" if they do not.
  const std::string& Named(const std::string& key) const { return named_.at(key); }
  // How messages become a text (Jinja); "" if the directory does not say.
  const std::string& chat_template() const { return chat_template_; }
  bool pads_left() const { return pads_left_; }
  int64_t pad_id() const { return pad_; }
  int64_t size() const { return size_; }  // One more than the largest id.

 private:
  BpeTokenizer() = default;
  absl::Status ReadSpecials(const std::filesystem::path& directory, std::vector<AddedToken> added);
  absl::Status ReadRules(const std::filesystem::path& directory, const BpeJson& model);
  icu::UnicodeString Normalised(std::string_view text) const;
  void AppendText(std::string_view text, std::vector<int64_t>& ids) const;

  BytePairs pairs_;
  AddedTokens added_, added_normalised_;  // In the text as given, and in the normalised one.
  std::map<std::string, std::string> named_;
  std::string chat_template_;
  WordRule words_ = WordRule::kQwen2;
  bool composes_ = true;  // NFC.
  bool pads_left_ = false;
  int64_t pad_ = 0, size_ = 0;
};

}  // namespace oxbow::io
