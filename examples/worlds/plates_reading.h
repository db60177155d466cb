// SPDX-License-Identifier: Apache-2.0
// The reader of the task `plates`, in the scorer's form, 8-bit grey. It knows the typeface and
// compares templates, so it has nothing in common with the OCR engine that `plates` is trained
// with: it is the witness of such a run, and never trained on.
//
// Each cell is compared with all ten digits at all three offsets; the least mean absolute error
// over the cell's 160 pixels (0 black, 1 white) wins. A cell with an error over .12 is unreadable,
// an empty one among them. Any two digits differ by .098 or more. All arithmetic is in integers:
// the same bytes give the same reading on every machine.
#pragma once

#include <cstdint>
#include <span>

#include "examples/worlds/digits_reading.h"
#include "examples/worlds/plates.h"

namespace oxbow::worlds {

inline constexpr int kPlateErrorPercentMax = 12;

// `pixels`: kPlatePixels bytes, row-major.
Reading ReadPlate(std::span<const uint8_t> pixels);

// How unclean an image is: its mean distance, 0 to 1, from the rendering of what is read in it. An
// unreadable cell counts with its best digit.
double PlateDust(std::span<const uint8_t> pixels);

}  // namespace oxbow::worlds
