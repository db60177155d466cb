#include "core/rl/ratio_statistics.h"
#include "metrics/step_metrics.h"

#include <algorithm>
#include <cmath>

namespace oxbow::rl {

void RatioStatistics::Add(Origin origin, int step, double log_ratio, double advantage,
                          ClipRange clip) {
  const double excess = std::expm1(log_ratio);
  const bool high = excess > clip.high;
  const bool low = excess < -clip.low;
  for (Count* count : {&by_origin_[static_cast<size_t>(origin)], &by_step_[step]}) {
    ++count->rows;
    count->clipped += high || low;
  }
  high_ += high;
  low_ += low;
  silenced_ += (high && advantage > 0) || (low && advantage < 0);
  ratio_min_ = rows_ == 0 ? 1 + excess : std::min(ratio_min_, 1 + excess);
  ratio_max_ = rows_ == 0 ? 1 + excess : std::max(ratio_max_, 1 + excess);
  ++rows_;
  excess_sum_ += excess;
  excess_squares_ += excess * excess;
  log_squares_ += log_ratio * log_ratio;
}

double RatioStatistics::Share(const Count& count) {
  return static_cast<double>(count.clipped) / static_cast<double>(count.rows);
}

void RatioStatistics::AppendMetrics(std::map<std::string, double>& metrics) const {
  if (rows_ == 0) return;
  const auto rows = static_cast<double>(rows_);
  const double mean = excess_sum_ / rows;
  metrics[metric::kTrainRatioMean] = 1 + mean;
  metrics[metric::kTrainRatioStd] = std::sqrt(std::max(0., excess_squares_ / rows - mean * mean));
  metrics[metric::kTrainRatioMin] = ratio_min_;
  metrics[metric::kTrainRatioMax] = ratio_max_;
  metrics[metric::kTrainApproxKl] = 0.5 * log_squares_ / rows;
  metrics[metric::kTrainClipFracTotal] = static_cast<double>(high_ + low_) / rows;
  metrics[metric::kTrainClipFracHigh] = static_cast<double>(high_) / rows;
  metrics[metric::kTrainClipFracLow] = static_cast<double>(low_) / rows;
  metrics[metric::kTrainClipFracZeroGrad] = static_cast<double>(silenced_) / rows;
  const std::array<metric::StepMetric, 3> clipped = {
      metric::kTrainClipFracFresh, metric::kTrainClipFracStale, metric::kTrainClipFracReplay};
  for (size_t o = 0; o < clipped.size(); ++o) {
    if (by_origin_[o].rows > 0) metrics[clipped[o]] = Share(by_origin_[o]);
  }
  for (const auto& [step, count] : by_step_) {
    metrics[metric::kTrainClipFracStepN.Of(std::to_string(step))] = Share(count);
  }
}

}  // namespace oxbow::rl
