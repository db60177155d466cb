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

Object Lie(const Object& object, double probability, RandomStream& random) {
  Object drawn;
  drawn.colour = Replaced(object.colour, kColourCount, probability, random);
  drawn.shape = Replaced(object.shape, kShapeCount, probability, random);
  return drawn;
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

std::vector<ComposeExample> ComposeBatch(const BatchOptions& options, int64_t step,
                                         const std::vector<Scene>& prompts) {
  OXBOW_CHECK(!prompts.empty()) << "no prompts to pretrain on";
  RandomStream random(
      {.seed = options.seed, .group = static_cast<uint64_t>(step), .step = kTaskData});
  std::vector<ComposeExample> batch(options.size);
  for (ComposeExample& example : batch) {
    example.caption = prompts[random.NextBelow(prompts.size())];
    const Object first = Lie(example.caption.first, options.caption_noise, random);
    const Object second = Lie(example.caption.second, options.caption_noise, random);
    const int relation = Replaced(static_cast<int>(example.caption.relation), kRelationCount,
                                  options.caption_noise, random);
    const auto places = PlacesOf(static_cast<Relation>(relation));
    const auto [first_cell, second_cell] = places[random.NextBelow(places.size())];
    example.drawn[first_cell] = first;
    example.drawn[second_cell] = second;
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
