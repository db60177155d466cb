#include "tasks/compose_vocabulary.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace oxbow::tasks {
namespace {

constexpr int64_t kByteForms = 512;

struct Vocabulary {
  std::vector<std::string> merges;
  std::map<std::string, int64_t> ids;  // Token id of each word.
};

// One round of byte-pair encoding: joins every occurrence of the pair with the lowest rank.
bool MergeOnce(const std::map<std::string, size_t>& ranks, std::vector<std::string>& symbols) {
  size_t best = ranks.size();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    const auto rank = ranks.find(absl::StrCat(symbols[i], " ", symbols[i + 1]));
    if (rank != ranks.end()) best = std::min(best, rank->second);
  }
  if (best == ranks.size()) return false;
  std::vector<std::string> joined;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (i + 1 < symbols.size()) {
      const auto rank = ranks.find(absl::StrCat(symbols[i], " ", symbols[i + 1]));
      if (rank != ranks.end() && rank->second == best) {
        joined.push_back(symbols[i] + symbols[i + 1]);
        ++i;
        continue;
      }
    }
    joined.push_back(symbols[i]);
  }
  symbols = std::move(joined);
  return true;
}

Vocabulary MakeVocabulary() {
  Vocabulary vocabulary;
  std::map<std::string, size_t> ranks;
  for (const std::string& word : ComposeWords()) {
    std::vector<std::string> symbols;
    for (const char letter : word) symbols.emplace_back(1, letter);
    symbols.back() += "</w>";
    while (symbols.size() > 1) {
      if (MergeOnce(ranks, symbols)) continue;
      vocabulary.merges.push_back(absl::StrCat(symbols[0], " ", symbols[1]));
      ranks[vocabulary.merges.back()] = ranks.size();
    }
    // The merge that made the whole word; a one-letter word would be a byte form.
    const auto last = std::find_if(
        vocabulary.merges.begin(), vocabulary.merges.end(), [&](const std::string& merge) {
          const std::vector<std::string> parts = absl::StrSplit(merge, ' ');
          return parts[0] + parts[1] == symbols[0];
        });
    OXBOW_CHECK(last != vocabulary.merges.end()) << word;
    vocabulary.ids[word] = kByteForms + (last - vocabulary.merges.begin());
  }
  return vocabulary;
}

const Vocabulary& TheVocabulary() {
  static const auto* const vocabulary = new Vocabulary(MakeVocabulary());
  return *vocabulary;
}

}  // namespace

const std::vector<std::string>& ComposeMerges() { return TheVocabulary().merges; }

int64_t ComposeBeginId() {
  return kByteForms + static_cast<int64_t>(TheVocabulary().merges.size());
}

int64_t ComposeEndId() { return ComposeBeginId() + 1; }

std::vector<int64_t> ComposeTokenIds(const Scene& scene) {
  std::vector<int64_t> ids = {ComposeBeginId()};
  const std::string prompt = ScenePrompt(scene);
  const std::vector<std::string> words = absl::StrSplit(prompt, ' ');
  for (const std::string& word : words) ids.push_back(TheVocabulary().ids.at(word));
  ids.resize(kComposeTokens, ComposeEndId());
  return ids;
}

}  // namespace oxbow::tasks
