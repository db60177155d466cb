// SPDX-License-Identifier: Apache-2.0
// The synthetic task `plates`: the prompt `text "473"` asks for a small grey image of that number
// in a real typeface, which a real OCR engine reads.
//
// An image has 16 rows of 32 columns, from -1 (black) to 1 (white): dark digits on white. There is
// no autoencoder: the latent is the image. Three digits of DejaVu Sans Bold at 14 px, 10 rows high,
// are in cells at columns 1, 11 and 21. Their common top row, 2, 3 or 4, is free, so that one
// prompt has three right images.
//
// The quotation marks are there because rewards of flow_grpo's kind look for the text between them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "examples/worlds/digits.h"

namespace oxbow::worlds {

inline constexpr int kPlateHeight = 16;
inline constexpr int kPlateWidth = 32;
inline constexpr int kPlatePixels = kPlateHeight * kPlateWidth;
inline constexpr int kPlateOffsets = 3;
inline constexpr int kPlateTopRow = 2;  // With offset 0.
inline constexpr std::array<int, kDigitCount> kPlateColumns = {1, 11, 21};

// Grey level of the digit at row offset `offset`, at `row` (0..15) and `column` (0..9) of its cell:
// 0 black to 255 white. Requires digit in 0..9 and offset in 0..2.
uint8_t PlateGrey(int digit, int offset, int row, int column);

// The image of a number, row-major. Requires offset in 0..2.
std::array<uint8_t, kPlatePixels> PlateBytes(const Digits& digits, int offset);

// Parses exactly `text "ddd"`. kInvalidArgument for any other text.
absl::StatusOr<Digits> ParsePlatePrompt(std::string_view text);

}  // namespace oxbow::worlds
