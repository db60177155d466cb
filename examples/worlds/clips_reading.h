// SPDX-License-Identifier: Apache-2.0
// Reads videos of the task `clip` in the scorer's form, 8-bit grey: a frame by itself, a clip by
// its frames, many by their means.
//
// A frame is compared with every number at every place; the least sum of absolute differences wins.
// A digit with a mean error over .15 in its cell of 5 x 8 pixels (0 black, 1 white) is unreadable,
// and so is all of a frame with more light than .1 outside the two cells: no third glyph can stand
// there. All arithmetic is in integers: the same bytes give the same reading on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/worlds/clips.h"
#include "examples/worlds/digits_reading.h"

namespace oxbow::worlds {

inline constexpr double kLightOutsideMax = 0.1;

struct FrameReading {
  ClipNumber digits = {kUnreadable, kUnreadable};
  ClipPlace place;  // That fits best, readable or not.

  bool readable() const { return digits[0] != kUnreadable && digits[1] != kUnreadable; }
};

// `pixels`: kFramePixels bytes, row-major.
FrameReading ReadFrame(std::span<const uint8_t> pixels);

// Digits read as they are wanted, each at its place: 0..2.
int RightDigits(const FrameReading& reading, const ClipNumber& wanted);

// Whether all frames show one number, readable and in one row, that moves by as many columns, not
// 0, from each frame to the next. Requires two frames.
bool Steady(std::span<const FrameReading> frames);

// `pixels`: kClipPixels bytes, frame after frame.
std::vector<FrameReading> ReadClip(std::span<const uint8_t> pixels);

struct ClipReport {
  int64_t images = 0;             // Clips.
  double reward = 0;              // Mean share of right digits.
  double reward_stderr = 0;       // Its standard error.
  double strict = 0;              // Share with all digits right in all frames.
  double steady = 0;              // See Steady.
  double speckle = 0;             // See Speckle of examples/worlds/digits_reading.h.
  double unreadable = 0;          // Share of unreadable digits.
  double minority_way_share = 0;  // The rarer way of the steady clips.
  double minority_row_share = 0;  // The rarer row of all frames.
  std::array<double, kClipDigits> digit_accuracy = {};  // Over all frames.
  std::array<double, kClipFrames> frame_accuracy = {};  // Over both digits.
};

class ClipCounter {
 public:
  void Add(const ClipNumber& wanted, std::span<const uint8_t> pixels);
  ClipReport Report() const;  // All zero if nothing was added.

 private:
  int64_t images_ = 0;
  double reward_ = 0;
  double reward_squares_ = 0;
  int64_t strict_ = 0;
  int64_t steady_ = 0;
  int64_t leftward_ = 0;   // Steady clips.
  int64_t lower_row_ = 0;  // Frames.
  double speckle_ = 0;
  int64_t unreadable_ = 0;
  std::array<std::array<int64_t, kClipDigits>, kClipFrames> right_ = {};
};

}  // namespace oxbow::worlds
