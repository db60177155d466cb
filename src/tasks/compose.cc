// SPDX-License-Identifier: Apache-2.0
#include "tasks/compose.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace oxbow::tasks {
namespace {

constexpr const char* kColours[kColourCount] = {"red", "green", "blue", "yellow"};
constexpr bool kChannels[kColourCount][kComposeChannels] = {
    {true, false, false}, {false, true, false}, {false, false, true}, {true, true, false}};
constexpr const char* kShapes[kShapeCount] = {"square", "disc", "cross", "triangle"};
constexpr const char* kRelations[kRelationCount] = {"left of", "right of", "above", "below"};

// Any two shapes differ in at least 12 of the 64 pixels of a cell.
constexpr int kShapeSide = 6;
constexpr const char* kMasks[kShapeCount][kShapeSide] = {
    {"######", "######", "######", "######", "######", "######"},
    {"..##..", ".####.", "######", "######", ".####.", "..##.."},
    {"##..##", ".####.", "..##..", "..##..", ".####.", "##..##"},
    {"..##..", "..##..", ".####.", ".####.", "######", "######"},
};

// Row and column of a cell, each 0 or 1.
int RowOf(int cell) { return cell / 2; }
int ColumnOf(int cell) { return cell % 2; }

template <size_t N>
std::optional<int> IndexIn(const char* const (&names)[N], const std::string& name) {
  const auto* const found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<int>(found - std::begin(names));
}

std::string ObjectText(const Object& object) {
  return absl::StrCat(kColours[object.colour], " ", kShapes[object.shape]);
}

std::optional<Object> ObjectOf(const std::string& colour, const std::string& shape) {
  const std::optional<int> colour_index = IndexIn(kColours, colour);
  const std::optional<int> shape_index = IndexIn(kShapes, shape);
  if (!colour_index || !shape_index) return std::nullopt;
  return Object{*colour_index, *shape_index};
}

std::optional<Scene> SceneOf(const std::vector<std::string>& words) {
  // Two words, one or two words for the relation, two words.
  if (words.size() < 5 || words.size() > 6) return std::nullopt;
  const std::string relation = words.size() == 5 ? words[2] : absl::StrCat(words[2], " ", words[3]);
  const std::optional<int> index = IndexIn(kRelations, relation);
  const std::optional<Object> first = ObjectOf(words[0], words[1]);
  const std::optional<Object> second = ObjectOf(words[words.size() - 2], words.back());
  if (!index || !first || !second || *first == *second) return std::nullopt;
  return Scene{*first, static_cast<Relation>(*index), *second};
}

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

bool ShapeCovers(int shape, int row, int column) {
  OXBOW_CHECK(shape >= 0 && shape < kShapeCount) << "shape " << shape;
  constexpr int kMargin = (kCellSide - kShapeSide) / 2;
  const int r = row - kMargin;
  const int c = column - kMargin;
  if (r < 0 || r >= kShapeSide || c < 0 || c >= kShapeSide) return false;
  return kMasks[shape][r][c] == '#';
}

bool ColourHas(int colour, int channel) {
  OXBOW_CHECK(colour >= 0 && colour < kColourCount && channel >= 0 && channel < kComposeChannels)
      << "colour " << colour << ", channel " << channel;
  return kChannels[colour][channel];
}

std::array<float, kComposeChannels * kComposePixels> RenderArrangement(const Arrangement& cells) {
  std::array<float, kComposeChannels * kComposePixels> image;
  image.fill(-1.0F);
  for (int i = 0; i < kComposeChannels * kComposePixels; ++i) {
    const int channel = i / kComposePixels;
    const int row = i % kComposePixels / kComposeSide;
    const int column = i % kComposeSide;
    const auto& object = cells[row / kCellSide * 2 + column / kCellSide];
    if (object && ColourHas(object->colour, channel) &&
        ShapeCovers(object->shape, row % kCellSide, column % kCellSide)) {
      image[i] = 1.0F;
    }
  }
  return image;
}

bool RelationHolds(Relation relation, int first_cell, int second_cell) {
  switch (relation) {
    case Relation::kLeftOf:
      return ColumnOf(first_cell) < ColumnOf(second_cell);
    case Relation::kRightOf:
      return ColumnOf(first_cell) > ColumnOf(second_cell);
    case Relation::kAbove:
      return RowOf(first_cell) < RowOf(second_cell);
    case Relation::kBelow:
      return RowOf(first_cell) > RowOf(second_cell);
  }
  OXBOW_CHECK(false) << "relation " << static_cast<int>(relation);
  return false;
}

std::array<std::pair<int, int>, 4> PlacesOf(Relation relation) {
  std::array<std::pair<int, int>, 4> places;
  size_t count = 0;
  for (int first = 0; first < kCellCount; ++first) {
    for (int second = 0; second < kCellCount; ++second) {
      if (RelationHolds(relation, first, second)) places.at(count++) = {first, second};
    }
  }
  OXBOW_CHECK(count == places.size()) << count << " places";
  return places;
}

std::vector<Scene> AllScenes() {
  const auto object = [](int i) { return Object{i / kShapeCount, i % kShapeCount}; };
  std::vector<Scene> scenes;
  for (int first = 0; first < kObjectCount; ++first) {
    for (int relation = 0; relation < kRelationCount; ++relation) {
      for (int second = 0; second < kObjectCount; ++second) {
        if (first == second) continue;
        scenes.push_back({object(first), static_cast<Relation>(relation), object(second)});
      }
    }
  }
  return scenes;
}

std::string ScenePrompt(const Scene& scene) {
  return absl::StrCat(ObjectText(scene.first), " ", kRelations[static_cast<int>(scene.relation)],
                      " ", ObjectText(scene.second));
}

absl::StatusOr<Scene> ParseScenePrompt(std::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(std::string(text), ' ');
  const std::optional<Scene> scene = SceneOf(words);
  if (scene) return *scene;
  return absl::InvalidArgumentError(
      absl::StrCat("prompt is not of the task compose, as \"red square left of blue disc\": ",
                   std::string(text.substr(0, 80))));
}

std::vector<std::string> ComposeWords() {
  std::vector<std::string> words(std::begin(kColours), std::end(kColours));
  words.insert(words.end(), std::begin(kShapes), std::end(kShapes));
  for (const char* word : {"left", "right", "above", "below", "of"}) words.emplace_back(word);
  return words;
}

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
