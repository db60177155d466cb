#include "core/rl/step_totals.h"
#include "metrics/step_metrics.h"

#include <algorithm>
#include <cmath>

namespace oxbow::rl {

double StepTotals::Count(size_t update, const std::vector<RowRef>& refs,
                         const std::vector<RowOutcome>& outcomes,
                         const LossDenominators& denominators) {
  double policy_loss = 0;
  double kl = 0;
  double old_kl = 0;
  double anchor = 0;
  for (size_t r = 0; r < refs.size(); ++r) {
    const RowRef& ref = refs[r];
    policy_loss += outcomes[r].policy_loss;
    kl += outcomes[r].kl;
    old_kl += outcomes[r].old_kl;
    anchor += outcomes[r].anchor;
    if (!HasRatio(options_)) continue;
    const double log_ratio = outcomes[r].log_ratio;
    ratios_.Add(ref.sample->origin, ref.row->step, log_ratio, ref.sample->advantage,
                options_.clip());
    if (update == 0 && ref.sample->origin == Origin::kFresh && ref.row->on_policy) {
      const double error = std::abs(std::expm1(log_ratio));
      onpolicy_error_ = std::max(onpolicy_error_.value_or(0), error);
    }
  }
  policy_loss /= denominators.policy;
  kl /= denominators.kl;
  old_kl /= denominators.policy;
  anchor /= denominators.samples;
  policy_loss_ += policy_loss;
  kl_ += kl;
  old_kl_ += old_kl;
  anchor_ += anchor;
  return policy_loss + options_.kl_weight * kl + options_.old_kl_weight * old_kl +
         options_.anchor.weight * anchor;
}

void StepTotals::Moved(double grad_norm) {
  grad_norm_ += grad_norm;
  ++updates_;
}

void StepTotals::AppendMetrics(std::map<std::string, double>& metrics) const {
  const double updates = std::max(1, updates_);
  const double pull = options_.kl_weight * kl_ + options_.old_kl_weight * old_kl_ +
                      options_.anchor.weight * anchor_;
  metrics[metric::kTrainLoss] = (policy_loss_ + pull) / updates;
  metrics[metric::kTrainPolicyLoss] = policy_loss_ / updates;
  metrics[metric::kTrainKlDiv] = kl_ / updates;
  metrics[metric::kTrainKlLoss] = options_.kl_weight * kl_ / updates;
  if (options_.old_kl_weight > 0) metrics[metric::kTrainOldKlDiv] = old_kl_ / updates;
  if (options_.anchor.weight > 0) metrics[metric::kTrainAnchorDiv] = anchor_ / updates;
  metrics[metric::kTrainGradNorm] = grad_norm_ / updates;
  ratios_.AppendMetrics(metrics);
  if (onpolicy_error_) metrics[metric::kTrainOnpolicyRatioErr] = *onpolicy_error_;
}

}  // namespace oxbow::rl
