// SPDX-License-Identifier: Apache-2.0
#include "core/reward/prompt_bootstrap.h"

#include "base/check.h"
#include "base/philox.h"
#include "base/statistics.h"

namespace oxbow::reward {
namespace {

double ResampledMean(const std::vector<double>& values, RandomStream& random) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += values[random.NextBelow(values.size())];
  return sum / static_cast<double>(values.size());
}

}  // namespace

MeanInterval BootstrapMean(const std::vector<std::vector<double>>& groups, uint64_t seed,
                           int resamples) {
  OXBOW_CHECK(!groups.empty() && resamples > 0) << groups.size() << " groups, " << resamples;
  std::vector<double> means;
  for (const std::vector<double>& group : groups) {
    OXBOW_CHECK(!group.empty()) << "a group without values";
    means.push_back(Mean(group));
  }
  RandomStream random({.seed = seed, .step = kTaskData});
  std::vector<double> drawn(static_cast<size_t>(resamples));
  for (double& mean : drawn) {
    double sum = 0;
    for (const std::vector<double>& group : groups) sum += ResampledMean(group, random);
    mean = sum / static_cast<double>(groups.size());
  }
  return {.mean = Mean(means), .low = Quantile(drawn, 0.025), .high = Quantile(drawn, 0.975)};
}

}  // namespace oxbow::reward
