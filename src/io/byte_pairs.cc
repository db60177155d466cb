// SPDX-License-Identifier: Apache-2.0
#include "io/byte_pairs.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr uint64_t kBpeFileBytesMax = 64 << 20;

bool IsPrintableByte(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// Each byte as a printable character (GPT-2's table): itself, or from U+0100 on for the others.
const std::array<std::string, 256>& ByteCharacters() {
  static const auto* const table = [] {
    auto* characters = new std::array<std::string, 256>;
    UChar32 next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      (*characters)[static_cast<size_t>(byte)] =
          Utf8(icu::UnicodeString(IsPrintableByte(byte) ? byte : next++));
    }
    return characters;
  }();
  return *table;
}

absl::Status ReadVocabulary(const std::filesystem::path& path, BpeJson& model) {
  OXBOW_ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonObject(path, kBpeFileBytesMax));
  for (const auto& [token, id] : json.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      return absl::DataLossError(absl::StrCat("token id is no id: ", token, ": ", path.string()));
    }
    model.vocabulary.emplace_back(token, id.get<int64_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const std::filesystem::path& path, BpeJson& model) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kBpeFileBytesMax));
  bool first = true;
  for (const auto part : absl::StrSplit(text, '\n')) {
    std::string line(part);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const bool version = std::exchange(first, false) && line.starts_with("#version");
    if (line.empty() || version) continue;
    if (std::count(line.begin(), line.end(), ' ') != 1) {
      return absl::DataLossError(
          absl::StrCat("merge is not a pair: '", line, "': ", path.string()));
    }
    const size_t space = line.find(' ');
    model.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return absl::OkStatus();
}

uint64_t PairOf(int64_t left, int64_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
}

}  // namespace

absl::StatusOr<BpeJson> ReadBpe(const std::filesystem::path& directory) {
  OXBOW_ASSIGN_OR_RETURN(std::optional<BpeJson> one, ReadBpeJson(directory));
  if (one) return *std::move(one);
  BpeJson model{.path = directory / "merges.txt"};
  const absl::Status vocabulary = ReadVocabulary(directory / "vocab.json", model);
  if (absl::IsNotFound(vocabulary)) {
    return absl::NotFoundError(
        absl::StrCat("no tokenizer.json and no vocab.json in ", directory.string()));
  }
  OXBOW_RETURN_IF_ERROR(vocabulary);
  OXBOW_RETURN_IF_ERROR(ReadMerges(model.path, model));
  return model;
}

absl::StatusOr<BytePairs> BytePairs::Make(const BpeJson& model) {
  BytePairs pairs;
  pairs.word_end_ = model.word_end;
  pairs.whole_words_ = model.whole_words;
  for (const auto& [token, id] : model.vocabulary) {
    pairs.vocabulary_[token] = id;
    pairs.size_ = std::max(pairs.size_, id + 1);
  }
  for (const auto& [left, right] : model.merges) {
    std::array<int64_t, 3> ids = {};
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto id = pairs.IdOf(i == 0 ? left : i == 1 ? right : left + right);
      if (!id) {
        return absl::DataLossError(absl::StrCat("merge is not of the vocabulary: '", left, " ",
                                                right, "': ", model.path.string()));
      }
      ids[i] = *id;
    }
    const auto rank = static_cast<int64_t>(pairs.merges_.size());
    pairs.merges_.emplace(PairOf(ids[0], ids[1]), Merge{.rank = rank, .id = ids[2]});
  }
  return pairs;
}

std::optional<int64_t> BytePairs::IdOf(const std::string& token) const {
  const auto found = vocabulary_.find(token);
  return found == vocabulary_.end() ? std::nullopt : std::optional(found->second);
}

void BytePairs::Append(std::string_view word, std::optional<int64_t> unknown,
                       std::vector<int64_t>& ids) const {
  std::vector<Symbol> symbols;
  std::string whole;
  for (size_t i = 0; i < word.size(); ++i) {
    std::string text = ByteCharacters()[static_cast<unsigned char>(word[i])];
    if (i + 1 == word.size()) text += word_end_;
    if (whole_words_) whole += text;
    const std::optional<int64_t> id = IdOf(text);
    if (!id && !unknown) continue;
    const size_t at = symbols.size();
    symbols.push_back({id ? *id : *unknown, at == 0 ? 0 : at - 1, at + 1});
  }
  if (const auto id = whole_words_ ? IdOf(whole) : std::nullopt; id) {
    ids.push_back(*id);
    return;
  }
  MergeAll(symbols);
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

// Merges the pair of the lowest rank, of several the leftmost, until no pair is left.
void BytePairs::MergeAll(std::vector<Symbol>& symbols) const {
  using Candidate = std::tuple<int64_t, size_t, int64_t>;  // Rank, left symbol, id of the two.
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](size_t left, size_t right) {
    const auto merge = merges_.find(PairOf(symbols[left].id, symbols[right].id));
    if (merge != merges_.end()) queue.emplace(merge->second.rank, left, merge->second.id);
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) offer(i, i + 1);
  while (!queue.empty()) {
    const auto [rank, at, id] = queue.top();
    queue.pop();
    Symbol& left = symbols[at];
    if (left.id < 0 || left.right >= symbols.size()) continue;
    Symbol& right = symbols[left.right];
    const auto merge = merges_.find(PairOf(left.id, right.id));
    if (merge == merges_.end() || merge->second.rank != rank) continue;  // One of the two changed.
    left.id = id;
    left.right = right.right;
    right.id = -1;
    if (left.right < symbols.size()) {
      symbols[left.right].left = at;
      offer(at, left.right);
    }
    if (at > 0) offer(left.left, at);
  }
}

}  // namespace oxbow::io
