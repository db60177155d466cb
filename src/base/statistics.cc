#include "base/statistics.h"

#include "base/check.h"
#include "base/philox.h"

namespace oxbow {
namespace {

double ResampledMean(const std::vector<double>& values, RandomStream& random) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += values[random.NextBelow(values.size())];
  return sum / static_cast<double>(values.size());
}

}  // namespace

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double StandardDeviation(const std::vector<double>& values, int ddof) {
  const double count = static_cast<double>(values.size()) - ddof;
  if (count <= 0) return 0;
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / count);
}

RatioInterval BootstrapRatio(const std::vector<double>& values, const std::vector<double>& baseline,
                             uint64_t seed, int resamples) {
  OXBOW_CHECK(!values.empty() && !baseline.empty()) << "a ratio of nothing";
  for (const double below : baseline) OXBOW_CHECK(below > 0) << "a baseline of " << below;
  RandomStream random({.seed = seed, .group = values.size(), .step = kTaskData});
  std::vector<double> ratios(resamples);
  for (double& ratio : ratios) {
    const double above = ResampledMean(values, random);
    ratio = above / ResampledMean(baseline, random);
  }
  std::sort(ratios.begin(), ratios.end());
  const auto at = [&](double share) {
    return ratios[static_cast<size_t>(share * static_cast<double>(ratios.size() - 1))];
  };
  return {.ratio = Mean(values) / Mean(baseline), .low = at(0.025), .high = at(0.975)};
}

}  // namespace oxbow
