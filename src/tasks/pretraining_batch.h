// The examples of one pretraining step on the task `digits`, a pure function of (seed, step).
//
// Captions are wrong on purpose: each digit of the image is replaced by a random one with
// probability `caption_noise`. The model then learns to draw sharp digits, but mostly the wrong
// number: the situation of a real text-to-image model before reinforcement learning.
//
// Times alternate: uniform in even steps, logit-normal(.2, 1.2) in odd ones.
#pragma once

#include <cstdint>
#include <vector>

#include "base/philox.h"
#include "tasks/digits.h"

namespace oxbow::tasks {

struct PretrainingExample {
  Digits caption;  // What the prompt says.
  Digits drawn;    // What the image shows.
  int offset = 0;  // Row offset of the image.
  float time = 0;  // Noise level in (0, 1).
};

struct BatchOptions {
  uint64_t seed = 0;
  int size = 64;
  double caption_noise = 0.5;
};

// The noise level of one example.
double PretrainingTime(int64_t step, RandomStream& random);

// Captions are drawn only from `prompts`: no other number is ever asked for. Requires prompts.
std::vector<PretrainingExample> PretrainingBatch(const BatchOptions& options, int64_t step,
                                                 const std::vector<Digits>& prompts);

}  // namespace oxbow::tasks
