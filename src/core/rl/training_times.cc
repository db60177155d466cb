// SPDX-License-Identifier: Apache-2.0
#include "core/rl/training_times.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/philox.h"
#include "core/flow/sampler.h"
#include "core/flow/schedule.h"

namespace oxbow::rl {
namespace {

constexpr int kPairsMax = 0x10000;  // Streams there are from kTrainingNoise on.

constexpr double kTimeMin = 0.01;

// Members no sample has: the names of what a group or a step shares.
constexpr uint32_t kOfGroup = 0xffffffffu;
constexpr uint32_t kOfStep = 0xfffffffeu;

flow::NoiseKey KeyFor(Sharing sharing, const PairKey& key) {
  switch (sharing) {
    case Sharing::kSample:
      return {key.run_seed, key.group, key.trajectory};
    case Sharing::kGroup:
      return {key.run_seed, key.group, kOfGroup};
    case Sharing::kStep:
      return {key.run_seed, key.step, kOfStep};
  }
  OXBOW_CHECK(false) << "sharing " << static_cast<int>(sharing);
}

int FirstLevels(const TimeOptions& options, int levels) {
  return std::max(1, static_cast<int>(options.fraction * levels));
}

// `count` of the first T levels in random order, the first ones of a permutation.
std::vector<double> OfGrid(int count, const std::vector<double>& sigmas, RandomStream& stream) {
  std::vector<double> levels(sigmas.begin(), sigmas.end() - 1);
  for (size_t i = levels.size(); i > 1; --i) std::swap(levels[i - 1], levels[stream.NextBelow(i)]);
  levels.resize(static_cast<size_t>(count));
  return levels;
}

std::vector<double> OfBins(const TimeOptions& options, int count, int begin,
                           const std::vector<double>& sigmas, RandomStream& stream) {
  const int end = std::max(begin + 1, FirstLevels(options, static_cast<int>(sigmas.size()) - 1));
  std::vector<double> times;
  for (int k = 0; k < count; ++k) {
    const double low = begin + static_cast<double>(end - begin) * k / count;
    const double width = static_cast<double>(end - begin) / count;
    const int level = static_cast<int>(low + stream.NextUniform() * width);
    times.push_back(sigmas[static_cast<size_t>(std::min(level, end - 1))]);
  }
  return times;
}

std::vector<double> Strata(int count, RandomStream& stream) {
  std::vector<double> out;
  for (int k = 0; k < count; ++k) out.push_back((k + stream.NextUniform()) / count);
  return out;
}

std::vector<double> OfLogitNormal(const TimeOptions& options, int count, RandomStream& stream) {
  std::vector<double> times;
  for (const double u : Strata(count, stream)) {
    const double inside = std::clamp(u, 1e-6, 1 - 1e-6);
    const double z = at::special_ndtri(at::full({}, inside, at::kDouble)).item<double>();
    times.push_back(std::max(flow::Shift(options.shift, 1 / (1 + std::exp(-z))), kTimeMin));
  }
  for (size_t i = times.size(); i > 1; --i) std::swap(times[i - 1], times[stream.NextBelow(i)]);
  return times;
}

}  // namespace

int PairCount(const TimeOptions& options, int levels) {
  return options.count > 0 ? options.count : FirstLevels(options, levels);
}

std::vector<double> DrawTimes(const TimeOptions& options, const std::vector<double>& sigmas,
                              const PairKey& key) {
  const int count = PairCount(options, static_cast<int>(sigmas.size()) - 1);
  const flow::NoiseKey who = KeyFor(options.times, key);
  RandomStream stream(
      {.seed = who.run_seed, .group = who.group, .sample = who.sample, .step = kTrainingPairs});
  switch (options.sampler) {
    case TimeSampler::kGrid:
      OXBOW_CHECK(count < static_cast<int>(sigmas.size())) << "times of a grid: " << count;
      return OfGrid(count, sigmas, stream);
    case TimeSampler::kDiscrete:
      return OfBins(options, count, 0, sigmas, stream);
    case TimeSampler::kWithoutInit:
      return OfBins(options, count, 1, sigmas, stream);
    case TimeSampler::kWithInit: {
      std::vector<double> times = OfBins(options, count - 1, 1, sigmas, stream);
      times.insert(times.begin(), sigmas.front());
      return times;
    }
    case TimeSampler::kUniform: {
      std::vector<double> times = Strata(count, stream);
      for (double& t : times)
        t = flow::Shift(options.shift, options.low + (options.high - options.low) * t);
      return times;
    }
    case TimeSampler::kLogitNormal:
      return OfLogitNormal(options, count, stream);
  }
  OXBOW_CHECK(false) << "time sampler " << static_cast<int>(options.sampler);
}

at::Tensor DrawPairNoise(const TimeOptions& options, const PairKey& key, int pair,
                         const std::vector<int64_t>& shape) {
  OXBOW_CHECK(pair >= 0 && pair < kPairsMax) << "pair " << pair;
  return flow::DrawNoise(KeyFor(options.noise, key), kTrainingNoise + static_cast<uint32_t>(pair),
                         shape);
}

}  // namespace oxbow::rl
