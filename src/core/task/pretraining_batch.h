// What one step of pretraining on the world `digits` sees, as a pure function of (seed, step).
//
// Captions lie: each digit of the picture differs from its caption's, by a random draw, with
// probability `caption_noise`. The model then learns to draw sharp digits that are mostly the wrong
// number, which is the situation of a real text-to-image model before reinforcement learning.
//
// Times alternate: uniform in even steps, logit-normal(.2, 1.2) in odd ones.
#pragma once

#include <cstdint>
#include <vector>

#include "base/philox.h"
#include "core/task/digits.h"

namespace oxbow::task {

struct PretrainingExample {
  Digits caption;  // What the prompt says.
  Digits drawn;    // What the picture shows.
  int offset = 0;  // Row of the picture.
  float time = 0;  // Noise level in (0, 1).
};

struct BatchOptions {
  uint64_t seed = 0;
  int size = 64;
  double caption_noise = 0.5;
};

// The noise level of one example.
double PretrainingTime(int64_t step, RandomStream& random);

// Captions are drawn from `prompts` alone: a number outside it is never asked for. Requires
// prompts.
std::vector<PretrainingExample> PretrainingBatch(const BatchOptions& options, int64_t step,
                                                 const std::vector<Digits>& prompts);

}  // namespace oxbow::task
