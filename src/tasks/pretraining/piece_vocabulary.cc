// SPDX-License-Identifier: Apache-2.0
#include "tasks/pretraining/piece_vocabulary.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"

namespace oxbow::tasks {
namespace {

constexpr char kSpace[] = "\xe2\x96\x81";  // U+2581
constexpr int64_t kEnd = 1;

std::vector<std::string> PiecesOf(const std::string& prompt) {
  std::vector<std::string> pieces;
  for (const absl::string_view word : absl::StrSplit(prompt, ' ', absl::SkipEmpty())) {
    if (std::all_of(word.begin(), word.end(), absl::ascii_isalpha)) {
      pieces.push_back(absl::StrCat(kSpace, word));
      continue;
    }
    for (size_t i = 0; i < word.size(); ++i) {
      pieces.push_back(absl::StrCat(i == 0 ? kSpace : "", word.substr(i, 1)));
    }
  }
  return pieces;
}

}  // namespace

PieceVocabulary::PieceVocabulary(const std::vector<std::string>& prompts)
    : pieces_({"<pad>", "</s>", "<unk>"}) {
  std::set<std::string> found;
  for (const std::string& prompt : prompts) {
    const std::vector<std::string> pieces = PiecesOf(prompt);
    found.insert(pieces.begin(), pieces.end());
    length_ = std::max(length_, static_cast<int64_t>(pieces.size()) + 1);
  }
  pieces_.insert(pieces_.end(), found.begin(), found.end());
  for (size_t i = 0; i < pieces_.size(); ++i) ids_[pieces_[i]] = static_cast<int64_t>(i);
}

at::Tensor PieceVocabulary::TokenIds(const std::vector<std::string>& prompts) const {
  at::Tensor ids = at::zeros({static_cast<int64_t>(prompts.size()), length_}, at::kLong);
  auto* row = ids.data_ptr<int64_t>();
  for (const std::string& prompt : prompts) {
    const std::vector<std::string> pieces = PiecesOf(prompt);
    OXBOW_CHECK(static_cast<int64_t>(pieces.size()) < length_) << "longer than all: " << prompt;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto id = ids_.find(pieces[i]);
      OXBOW_CHECK(id != ids_.end()) << "no piece '" << pieces[i] << "': " << prompt;
      row[i] = id->second;
    }
    row[pieces.size()] = kEnd;
    row += length_;
  }
  return ids;
}

}  // namespace oxbow::tasks
