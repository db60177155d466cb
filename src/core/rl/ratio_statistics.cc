#include "core/rl/ratio_statistics.h"

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
  metrics["train/ratio_mean"] = 1 + mean;
  metrics["train/ratio_std"] = std::sqrt(std::max(0., excess_squares_ / rows - mean * mean));
  metrics["train/ratio_min"] = ratio_min_;
  metrics["train/ratio_max"] = ratio_max_;
  metrics["train/approx_kl"] = 0.5 * log_squares_ / rows;
  metrics["train/clip_frac_total"] = static_cast<double>(high_ + low_) / rows;
  metrics["train/clip_frac_high"] = static_cast<double>(high_) / rows;
  metrics["train/clip_frac_low"] = static_cast<double>(low_) / rows;
  metrics["train/clip_frac_zero_grad"] = static_cast<double>(silenced_) / rows;
  const std::array<const char*, 3> names = {"fresh", "stale", "replay"};
  for (size_t o = 0; o < names.size(); ++o) {
    if (by_origin_[o].rows == 0) continue;
    metrics[std::string("train/clip_frac_") + names[o]] = Share(by_origin_[o]);
  }
  for (const auto& [step, count] : by_step_) {
    metrics["train/clip_frac_step_" + std::to_string(step)] = Share(count);
  }
}

}  // namespace oxbow::rl
