#include "core/rl/advantage.h"

#include <algorithm>
#include <cmath>

namespace oxbow::rl {
namespace {

double MeanOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double StdOf(const std::vector<double>& values, int ddof) {
  const double count = static_cast<double>(values.size()) - ddof;
  if (count <= 0) return 0;
  const double mean = MeanOf(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / count);
}

std::vector<double> Scored(const std::vector<std::optional<double>>& rewards) {
  std::vector<double> scored;
  for (const auto& reward : rewards) {
    if (reward.has_value()) scored.push_back(*reward);
  }
  return scored;
}

// Compares values, not the rounded standard deviation: eight times .1 must count as equal.
bool Differ(const std::vector<double>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end();
}

}  // namespace

std::vector<GroupAdvantages> ComputeAdvantages(
    const std::vector<std::vector<std::optional<double>>>& rewards,
    const AdvantageOptions& options) {
  std::vector<double> everything;
  for (const auto& group : rewards) {
    const std::vector<double> scored = Scored(group);
    everything.insert(everything.end(), scored.begin(), scored.end());
  }
  const double global_std = StdOf(everything, options.ddof);

  std::vector<GroupAdvantages> result;
  result.reserve(rewards.size());
  for (const auto& group : rewards) {
    const std::vector<double> scored = Scored(group);
    GroupAdvantages out{.advantages = std::vector<double>(group.size(), 0),
                        .mean = MeanOf(scored),
                        .std = StdOf(scored, 0),
                        .has_variance = Differ(scored)};
    double divisor = 1;
    if (options.std == AdvantageStd::kGroup)
      divisor = StdOf(scored, options.ddof) + options.epsilon;
    if (options.std == AdvantageStd::kGlobal) divisor = global_std + options.epsilon;
    for (size_t s = 0; s < group.size() && out.has_variance; ++s) {
      if (!group[s].has_value()) continue;
      out.advantages[s] = std::clamp((*group[s] - out.mean) / divisor, -options.clip, options.clip);
    }
    result.push_back(std::move(out));
  }
  return result;
}

}  // namespace oxbow::rl
