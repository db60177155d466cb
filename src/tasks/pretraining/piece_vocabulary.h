// SPDX-License-Identifier: Apache-2.0
// The vocabulary of a small T5 tokenizer: a piece for each word of letters, and one for each other
// character at the beginning of a word and one for it further on. There is one way to cut a prompt
// into them.
//
//   text 473  ->  "▁text" "▁4" "7" "3" "</s>"
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace oxbow::tasks {

class PieceVocabulary {
 public:
  // Takes the words of these prompts, in ASCII and without other white space than single spaces.
  explicit PieceVocabulary(const std::vector<std::string>& prompts);

  // In the order of their ids; "<pad>", "</s>" and "<unk>" first.
  const std::vector<std::string>& pieces() const { return pieces_; }
  int64_t length() const { return length_; }  // Ids of the longest prompt, with "</s>".

  // [N, length()] int64. Requires prompts that need no further piece and are no longer.
  at::Tensor TokenIds(const std::vector<std::string>& prompts) const;

 private:
  std::vector<std::string> pieces_;
  std::map<std::string, int64_t> ids_;
  int64_t length_ = 0;
};

}  // namespace oxbow::tasks
