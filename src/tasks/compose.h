// SPDX-License-Identifier: Apache-2.0
// The synthetic task `compose`: the prompt "red square left of blue disc" asks for a small colour
// image of two objects.
//
// An image has 16 rows of 16 columns of red, green and blue, from -1 (dark) to 1 (bright). There is
// no autoencoder: the latent is the image. It has four cells of 8 x 8,
//
//   0 1      each dark or with one of 16 objects (a shape of 6 x 6 in a colour)
//   2 3
//
// The objects may be anywhere as long as the relation holds, so that every prompt has four right
// images: "left of" requires the first object in cell 0 or 2 and the second in cell 1 or 3.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::tasks {

inline constexpr int kComposeSide = 16;  // Width and height in pixels.
inline constexpr int kComposeChannels = 3;
inline constexpr int kComposePixels = kComposeSide * kComposeSide;
inline constexpr int kCellSide = 8;
inline constexpr int kCellCount = 4;
inline constexpr int kColourCount = 4;
inline constexpr int kShapeCount = 4;
inline constexpr int kRelationCount = 4;
inline constexpr int kObjectCount = kColourCount * kShapeCount;

struct Object {
  int colour = 0;  // red, green, blue, yellow
  int shape = 0;   // square, disc, cross, triangle
  friend bool operator==(const Object&, const Object&) = default;
};

enum class Relation { kLeftOf, kRightOf, kAbove, kBelow };

// The scene that a prompt asks for. The two objects differ.
struct Scene {
  Object first;
  Relation relation = Relation::kLeftOf;
  Object second;
  friend bool operator==(const Scene&, const Scene&) = default;
};

// The object in each cell.
using Arrangement = std::array<std::optional<Object>, kCellCount>;

// Whether a shape covers a pixel of its cell. Requires shape in 0..3, row and column in 0..7.
bool ShapeCovers(int shape, int row, int column);

// Whether a colour contains a channel (0 red, 1 green, 2 blue).
bool ColourHas(int colour, int channel);

// Channels first, rows top to bottom; every value -1 or 1.
std::array<float, kComposeChannels * kComposePixels> RenderArrangement(const Arrangement& cells);

// The four pairs of cells (cell of first, cell of second) for which a relation holds.
std::array<std::pair<int, int>, 4> PlacesOf(Relation relation);
bool RelationHolds(Relation relation, int first_cell, int second_cell);

// All 960 scenes, in a fixed order.
std::vector<Scene> AllScenes();

// "red square left of blue disc", and back: kInvalidArgument for any other text.
std::string ScenePrompt(const Scene& scene);
absl::StatusOr<Scene> ParseScenePrompt(std::string_view text);

// The words of all prompts, each once.
std::vector<std::string> ComposeWords();

// Each word is one token of a CLIP tokenizer:
//
//   begin, 5 or 6 words, end, end ... up to kComposeTokens ids
inline constexpr int kComposeTokens = 8;

// The tokenizer's merges ("t e", "te xt</w>") in order: byte pairs that make each word one token
// and do not change any word before it in ComposeWords().
const std::vector<std::string>& ComposeMerges();

// Ids of begin and end. They follow 256 bytes, the same 256 bytes at the end of a word, and the
// merges.
int64_t ComposeBeginId();
int64_t ComposeEndId();

// Returns kComposeTokens ids.
std::vector<int64_t> ComposeTokenIds(const Scene& scene);

}  // namespace oxbow::tasks
