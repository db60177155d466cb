// Reads a picture of the world `compose` as a scorer sees it: 8-bit colour, cell by cell.
//
// Each cell is compared with all 16 objects and with darkness; the least mean absolute error over
// its 192 values (0 dark, 1 bright) wins. An error over .05 is unreadable: something stands there,
// but nobody can say what. All in integers: the same bytes read the same everywhere.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/task/compose.h"

namespace oxbow::task {

inline constexpr int kCellErrorPercentMax = 5;

struct ComposeCell {
  bool dark = true;              // Nothing stands there.
  std::optional<Object> object;  // Unset where dark or unreadable.
  double error = 1;              // Of the best match, in [0, 1].
};

using ComposeReading = std::array<ComposeCell, kCellCount>;

// `pixels`: channels interleaved, rows top to bottom, kComposeChannels * kComposePixels bytes.
ComposeReading ReadCompose(std::span<const uint8_t> pixels);

// Partial credit as GenEval gives it (arXiv:2310.11513), each part in [0, 1].
struct SceneCredit {
  double count = 0;     // 1 if exactly two cells are not dark.
  double shapes = 0;    // Share of the two wanted shapes that are there, in whatever colour.
  double colours = 0;   // Share of the two wanted colours that are there, on whatever shape.
  double relation = 0;  // 1 if both objects are there, whole, and stand as asked.

  double reward() const { return (count + shapes + colours + relation) / 4; }
  bool strict() const { return count == 1 && relation == 1; }
};

SceneCredit CreditOf(const ComposeReading& reading, const Scene& wanted);

// Which of the four right places (index into PlacesOf) the wanted objects take; unset if not right.
std::optional<int> PlaceTaken(const ComposeReading& reading, const Scene& wanted);

}  // namespace oxbow::task
