// What the updates of one learner step add up to.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/rl/gradient_pass.h"
#include "core/rl/options.h"
#include "core/rl/ratio_statistics.h"

namespace oxbow::rl {

class StepTotals {
 public:
  // `options` outlives it.
  explicit StepTotals(const TrainerOptions& options) : options_(options) {}

  // Adds the outcomes of update number `update`, those of all ranks; returns its loss.
  double Count(size_t update, const std::vector<RowRef>& refs,
               const std::vector<RowOutcome>& outcomes, const LossDenominators& denominators);

  // The update counted last moved the weights.
  void Moved(double grad_norm);

  // train/loss, policy_loss, kl_div, kl_loss, old_kl_div, anchor_div, grad_norm,
  // onpolicy_ratio_err, ratios.
  void AppendMetrics(std::map<std::string, double>& metrics) const;

 private:
  const TrainerOptions& options_;
  double policy_loss_ = 0;
  double kl_ = 0;
  double old_kl_ = 0;
  double anchor_ = 0;
  double grad_norm_ = 0;
  int updates_ = 0;  // Those that moved the weights.
  RatioStatistics ratios_;
  std::optional<double> onpolicy_error_;  // Unset: the first update had no fresh on-policy row.
};

}  // namespace oxbow::rl
