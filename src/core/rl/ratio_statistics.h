// What the clip did to the rows of a step: fractions by side and by where a row came from.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "core/rl/clip_range.h"

namespace oxbow::rl {

enum class Origin { kFresh, kStale, kReplay };

class RatioStatistics {
 public:
  // Counts one row: its denoising step, its log-ratio lp_new - lp_old, its advantage, and the range
  // of its ratio.
  void Add(Origin origin, int step, double log_ratio, double advantage, ClipRange clip);

  // train/ratio_{mean,min,max,std}, train/approx_kl, train/clip_frac_{total,high,low,zero_grad} and
  // train/clip_frac_{fresh,stale,replay} and train/clip_frac_step_N for the origins and denoising
  // steps that occurred. Nothing if no row was added. zero_grad counts rows the clip silences: A >
  // 0 above the range or A < 0 below it.
  void AppendMetrics(std::map<std::string, double>& metrics) const;

 private:
  struct Count {
    int64_t rows = 0;
    int64_t clipped = 0;
  };
  static double Share(const Count& count);

  std::array<Count, 3> by_origin_;
  std::map<int, Count> by_step_;
  int64_t rows_ = 0;
  int64_t high_ = 0;
  int64_t low_ = 0;
  int64_t silenced_ = 0;
  double excess_sum_ = 0;  // Of ratio - 1, whose digits survive the sum.
  double excess_squares_ = 0;
  double log_squares_ = 0;
  double ratio_min_ = 0;
  double ratio_max_ = 0;
};

}  // namespace oxbow::rl
