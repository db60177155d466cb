#include "tasks/pretraining_batch.h"

#include <cmath>

#include "base/check.h"
#include "base/philox.h"

namespace oxbow::tasks {
namespace {

constexpr double kLogitMean = 0.2;
constexpr double kLogitStd = 1.2;

}  // namespace

double PretrainingTime(int64_t step, RandomStream& random) {
  if (step % 2 == 0) return random.NextUniform();
  return 1 / (1 + std::exp(-(kLogitMean + kLogitStd * random.NextNormal())));
}

std::vector<PretrainingExample> PretrainingBatch(const BatchOptions& options, int64_t step,
                                                 const std::vector<Digits>& prompts) {
  OXBOW_CHECK(!prompts.empty()) << "no prompts to pretrain on";
  RandomStream random(
      {.seed = options.seed, .group = static_cast<uint64_t>(step), .step = kTaskData});
  std::vector<PretrainingExample> batch(options.size);
  for (PretrainingExample& example : batch) {
    example.caption = prompts[random.NextBelow(prompts.size())];
    example.drawn = example.caption;
    // The image is changed, not the caption, so that held-out prompts stay unseen.
    for (int& digit : example.drawn) {
      const bool replaced = random.NextUniform() < options.caption_noise;
      const int other = static_cast<int>(random.NextBelow(10));
      if (replaced) digit = other;
    }
    example.offset = static_cast<int>(random.NextBelow(kRowOffsets));
    example.time = static_cast<float>(PretrainingTime(step, random));
  }
  return batch;
}

}  // namespace oxbow::tasks
