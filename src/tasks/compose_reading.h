// SPDX-License-Identifier: Apache-2.0
// Reads images of the task `compose` in the scorer's form, 8-bit colour: one cell by cell, many
// by their means.
//
// Each cell is compared with all 16 objects and with a dark cell; the least mean absolute error
// over its 192 values (0 dark, 1 bright) wins. A cell with an error over .05 is unreadable: it is
// not dark, but shows no known object. All arithmetic is in integers: the same bytes give the same
// reading on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tasks/compose.h"

namespace oxbow::tasks {

inline constexpr int kCellErrorPercentMax = 5;

struct ComposeCell {
  bool dark = true;              // The cell is empty.
  std::optional<Object> object;  // Unset if dark or unreadable.
  double error = 1;              // Error of the best match, in [0, 1].
};

using ComposeReading = std::array<ComposeCell, kCellCount>;

// `pixels`: channels interleaved, rows top to bottom, kComposeChannels * kComposePixels bytes.
ComposeReading ReadCompose(std::span<const uint8_t> pixels);

// Partial credit as in GenEval (arXiv:2310.11513); each part is in [0, 1].
struct SceneCredit {
  double count = 0;     // 1 if exactly two cells are not dark.
  double shapes = 0;    // Share of the two wanted shapes that are present, in any colour.
  double colours = 0;   // Share of the two wanted colours that are present, on any shape.
  double relation = 0;  // 1 if both objects are present and placed as the prompt asks.

  double reward() const { return (count + shapes + colours + relation) / 4; }
  bool strict() const { return count == 1 && relation == 1; }
};

SceneCredit CreditOf(const ComposeReading& reading, const Scene& wanted);

// The one of the four right places (index into PlacesOf) that the wanted objects are in; unset if
// the image is wrong.
std::optional<int> PlaceTaken(const ComposeReading& reading, const Scene& wanted);

// Facts of a set of images: the reward and its parts, and what the reward does not show.
struct ComposeReport {
  int64_t images = 0;
  double reward = 0;         // Mean partial credit.
  double reward_stderr = 0;  // Its standard error.
  double strict = 0;         // Share with everything right.
  double count = 0;          // Means of the parts of the credit.
  double shapes = 0;
  double colours = 0;
  double relation = 0;
  double speckle = 0;     // Mean grey noise; see Speckle.
  double unreadable = 0;  // Share of unreadable cells.
  // Among right images: share of the least used of the four right places, times four, averaged over
  // relations. 1: all places are used equally; 0: at least one place is never used.
  double place_balance = 0;
};

// Counts images one by one.
class ComposeCounter {
 public:
  // `pixels`: as for ReadCompose.
  void Add(const Scene& wanted, std::span<const uint8_t> pixels);
  ComposeReport Report() const;  // All zero if nothing was added.

 private:
  double PlaceBalance() const;

  ComposeReport sums_;  // Sums of the values whose means are in the report.
  double reward_squares_ = 0;
  std::array<std::array<int64_t, 4>, kRelationCount> places_ = {};
};

}  // namespace oxbow::tasks
