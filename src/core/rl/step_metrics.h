// SPDX-License-Identifier: Apache-2.0
// The metrics of a learner step: those that follow from its groups and its plan, and what its
// updates add up to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/rl/gradient_pass.h"
#include "core/rl/method.h"
#include "core/rl/options.h"
#include "core/rl/training_plan.h"

namespace oxbow::rl {

// train/reward_*, train/adv_*, train/samples_trained, train/staleness_* (learner steps; fresh
// samples) and train/replay_reward_change (mean of re-scored minus stored reward).
void AppendPlanMetrics(const TrainerOptions& options, PolicyVersion version,
                       const std::vector<Group>& groups, const TrainingPlan& plan,
                       std::map<std::string, double>& metrics);

// train/iw_{mean,min,max,ess,trunc_frac} of the weights computed. Nothing if there are none.
void AppendWeightMetrics(const std::vector<SequenceWeight>& weights,
                         std::map<std::string, double>& metrics);

// Effects of the clip on the rows of a step: fractions by side and by origin of the row.
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
  double excess_sum_ = 0;  // The sum of ratio - 1, which keeps more digits than the ratio.
  double excess_squares_ = 0;
  double log_squares_ = 0;
  double ratio_min_ = 0;
  double ratio_max_ = 0;
};

// Mean log-probs by denoising step, by the policy before the step (Fig. 2 of OP-GRPO).
class LogProbsByStep {
 public:
  // Counts the clip's centre of a row: of replayed samples only what is stored, not what was drawn
  // again. `centre_error` as in RowOutcome.
  void Add(const RowRef& ref, double centre_error);

  // train/log_prob_{drawn,replay}_step_N of the steps that occurred.
  void AppendMetrics(std::map<std::string, double>& metrics) const;

 private:
  struct Sum {
    int64_t rows = 0;
    double log_probs = 0;
  };
  std::map<int, Sum> drawn_;  // Fresh and stale samples.
  std::map<int, Sum> replayed_;
};

// How far the surrogates of a group's samples are apart (V-GRPO, Fig. 2): noise that the samples
// of a group do not share is noise of their ratios.
class SurrogateSpread {
 public:
  // Counts a row's surrogate, above 0.
  void Add(const RowRef& ref, double surrogate);

  // train/surrogate_cv: the standard deviation over the mean of the samples of a group, each the
  // mean of its rows; its mean over groups of two samples or more. Nothing if there is none.
  void AppendMetrics(std::map<std::string, double>& metrics) const;

 private:
  // By group and sample: the sum of its rows, and their number.
  std::map<size_t, std::map<size_t, std::pair<double, int64_t>>> samples_;
};

// Sums over the updates of one learner step.
class StepTotals {
 public:
  // `options` outlives it. `has_ratio` as in method.h.
  StepTotals(const TrainerOptions& options, LearnerStep step, bool has_ratio)
      : options_(options), pull_(options.KlAt(step.value)), has_ratio_(has_ratio) {}

  // Adds the outcomes of update number `update`, of all ranks; returns its loss.
  double Count(size_t update, const std::vector<RowRef>& refs,
               const std::vector<RowOutcome>& outcomes, const LossDenominators& denominators);

  // The update counted last moved the weights: the gradient's norm before its limit, and the root
  // mean square of its elements after it.
  void Moved(double grad_norm, double grad_rms);

  // train/loss, policy_loss, kl_div, kl_precedent_div, kl_loss, old_kl_div, anchor_div, grad_norm,
  // onpolicy_ratio_err, ratios, log-probs by step.
  void AppendMetrics(std::map<std::string, double>& metrics) const;

 private:
  const TrainerOptions& options_;
  const KlOptions pull_;
  const bool has_ratio_;
  RowOutcome sums_;  // Terms of updates, divided as the loss divides them.
  double grad_norm_ = 0;
  double grad_rms_ = 0;
  int updates_ = 0;  // Updates that moved the weights.
  RatioStatistics ratios_;
  LogProbsByStep log_probs_;
  SurrogateSpread surrogates_;            // In the first update.
  std::optional<double> onpolicy_error_;  // Unset: the first update had no fresh on-policy row.
};

}  // namespace oxbow::rl
