// SPDX-License-Identifier: Apache-2.0
#include "services/learner/evaluation/picture_numbers.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/statistics.h"
#include "core/reward/picture_statistics.h"
#include "core/reward/pillow_resize.h"
#include "core/reward/synthetic_task.h"
#include "metrics/step_metrics.h"

namespace oxbow::learner {
namespace {

constexpr size_t kFramesLookedAt = 4;

bool GreyIsDust(const v1::RewardConfig& reward) {
  std::vector<std::string> names(reward.observed().begin(), reward.observed().end());
  for (const v1::RewardTerm& term : reward.terms()) names.push_back(term.name());
  const reward::SyntheticTask* const task = reward::TaskOfRewards(names);
  return task != nullptr && task->grey_is_dust();
}

// Mean of 1 - |x| over pixels x = p / 127.5 - 1: measures grey dust, which scorers tolerate and
// people see.
// |x| is |2p - 255| / 255, whose sum is exact in integers.
double Speckle(const Pictures& pictures) {
  uint64_t sum = 0;
  uint64_t count = 0;
  for (const std::vector<Image8>& frames : pictures) {
    for (const Image8& frame : frames) {
      for (const uint8_t pixel : frame.pixels) {
        sum += static_cast<uint64_t>(std::abs(2 * pixel - 255));
      }
      count += frame.pixels.size();
    }
  }
  return 1 - static_cast<double>(sum) / (255 * static_cast<double>(count));
}

// The mean over frames that lie evenly in the video, its first among them.
double MeanOfFrames(const std::vector<Image8>& frames, double (*statistic)(const Image8&)) {
  const size_t looked_at = std::min(frames.size(), kFramesLookedAt);
  double sum = 0;
  for (size_t i = 0; i < looked_at; ++i) sum += statistic(frames[i * frames.size() / looked_at]);
  return sum / static_cast<double>(looked_at);
}

void AddStatistic(const Pictures& pictures, double (*statistic)(const Image8&),
                  const metric::StepMetric& mean, const metric::StepMetric& spread,
                  std::map<std::string, double>& metrics) {
  std::vector<double> values;
  for (const std::vector<Image8>& frames : pictures) {
    values.push_back(MeanOfFrames(frames, statistic));
  }
  metrics[mean] = Mean(values);
  metrics[spread] = StandardDeviation(values, 0);
}

}  // namespace

void AddPictureNumbers(const v1::RewardConfig& reward, const Pictures& pictures,
                       std::map<std::string, double>& metrics) {
  if (GreyIsDust(reward)) {
    metrics[metric::kEvalSpeckleMean] = Speckle(pictures);
    return;
  }
  AddStatistic(pictures, reward::SaturatedShare, metric::kEvalSaturatedShare,
               metric::kEvalSaturatedShareStd, metrics);
  AddStatistic(pictures, reward::FineDetail, metric::kEvalFineDetail, metric::kEvalFineDetailStd,
               metrics);
  AddStatistic(pictures, reward::Sharpness, metric::kEvalSharpness, metric::kEvalSharpnessStd,
               metrics);
}

std::vector<Image8> SmallPictures(const Pictures& pictures) {
  std::vector<Image8> small;
  for (size_t i = 0; i < std::min(pictures.size(), kSmallPicturesMax); ++i) {
    const std::vector<Image8>& frames = pictures[i];
    small.push_back(reward::ResizeAsPillow(frames[frames.size() / 2], kSmallSide, kSmallSide,
                                           reward::ResizeKernel::kBilinear));
  }
  return small;
}

}  // namespace oxbow::learner
