// SPDX-License-Identifier: Apache-2.0
// The examples of one pretraining step on a synthetic task, a pure function of (seed, step).
//
// Captions are wrong on purpose: each digit of an image of `digits` or `plates` or of a video of
// `clip` is replaced by a random one with probability `caption_noise`. The model then learns to
// draw sharp images, but mostly the wrong ones: the situation of a real text-to-image model before
// reinforcement learning.
//
// Times alternate: uniform in even steps, logit-normal(.2, 1.2) in odd ones.
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/clips.h"
#include "tasks/digits.h"

namespace oxbow::tasks {

struct PretrainingExample {
  Digits caption;  // The prompt's digits.
  Digits drawn;    // The image's digits.
  int offset = 0;  // Row offset of the image.
  float time = 0;  // Noise level in (0, 1).
};

struct BatchOptions {
  uint64_t seed = 0;
  int size = 64;
  double caption_noise = 0.5;
};

// Captions are drawn only from `prompts`: no other number is ever asked for. Requires prompts. The
// examples of `digits`; with kPlateOffsets those of `plates`.
std::vector<PretrainingExample> PretrainingBatch(const BatchOptions& options, int64_t step,
                                                 const std::vector<Digits>& prompts,
                                                 int offsets = kRowOffsets);

struct ClipExample {
  ClipNumber caption;  // The prompt's number.
  ClipNumber drawn;    // The number in all frames.
  int layout = 0;      // Way and row.
  float time = 0;      // Noise level in (0, 1).
};

// As PretrainingBatch.
std::vector<ClipExample> ClipBatch(const BatchOptions& options, int64_t step,
                                   const std::vector<ClipNumber>& prompts);

}  // namespace oxbow::tasks
