// SPDX-License-Identifier: Apache-2.0
#include "tasks/pretraining_batch.h"

#include <cmath>

#include "base/check.h"
#include "base/philox.h"

namespace oxbow::tasks {
namespace {

constexpr double kLogitMean = 0.2;
constexpr double kLogitStd = 1.2;

// With the given probability one of `count` values, else `value`. Draws the same random numbers
// either way.
int Replaced(int value, int count, double probability, RandomStream& random) {
  const bool replaced = random.NextUniform() < probability;
  const int other = static_cast<int>(random.NextBelow(count));
  return replaced ? other : value;
}

// The noise level of one example.
double PretrainingTime(int64_t step, RandomStream& random) {
  if (step % 2 == 0) return random.NextUniform();
  return 1 / (1 + std::exp(-(kLogitMean + kLogitStd * random.NextNormal())));
}

}  // namespace

std::vector<PretrainingExample> PretrainingBatch(const BatchOptions& options, int64_t step,
                                                 const std::vector<Digits>& prompts, int offsets) {
  OXBOW_CHECK(!prompts.empty()) << "no prompts to pretrain on";
  RandomStream random(
      {.seed = options.seed, .group = static_cast<uint64_t>(step), .step = kTaskData});
  std::vector<PretrainingExample> batch(options.size);
  for (PretrainingExample& example : batch) {
    example.caption = prompts[random.NextBelow(prompts.size())];
    example.drawn = example.caption;
    // The image is changed, not the caption, so that held-out prompts stay unseen.
    for (int& digit : example.drawn) digit = Replaced(digit, 10, options.caption_noise, random);
    example.offset = static_cast<int>(random.NextBelow(offsets));
    example.time = static_cast<float>(PretrainingTime(step, random));
  }
  return batch;
}

std::vector<ClipExample> ClipBatch(const BatchOptions& options, int64_t step,
                                   const std::vector<ClipNumber>& prompts) {
  OXBOW_CHECK(!prompts.empty()) << "no prompts to pretrain on";
  RandomStream random(
      {.seed = options.seed, .group = static_cast<uint64_t>(step), .step = kTaskData});
  std::vector<ClipExample> batch(options.size);
  for (ClipExample& example : batch) {
    example.caption = prompts[random.NextBelow(prompts.size())];
    example.drawn = example.caption;
    for (int& digit : example.drawn) digit = Replaced(digit, 10, options.caption_noise, random);
    example.layout = static_cast<int>(random.NextBelow(kClipLayouts));
    example.time = static_cast<float>(PretrainingTime(step, random));
  }
  return batch;
}

}  // namespace oxbow::tasks
