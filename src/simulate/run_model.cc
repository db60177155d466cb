// SPDX-License-Identifier: Apache-2.0
#include "simulate/run_model.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::simulate {
namespace {

// The worker's level in the tree; workers that the learner serves are on level 1.
int DepthOf(uint32_t weight_fanout, uint32_t index) {
  uint64_t level_size = weight_fanout;
  uint64_t before = 0;
  int depth = 1;
  while (index >= before + level_size) {
    before += level_size;
    level_size *= weight_fanout;
    ++depth;
  }
  return depth;
}

constexpr CostField kCostFields[] = {
    {"batch_s", &Costs::batch_s},
    {"group_s", &Costs::group_s},
    {"spread", &Costs::spread},
    {"straggler_share", &Costs::straggler_share},
    {"straggler_factor", &Costs::straggler_factor},
    {"worker_spread", &Costs::worker_spread},
    {"linger_s", &Costs::linger_s},
    {"apply_s", &Costs::apply_s},
    {"reward_s", &Costs::reward_s},
    {"reward_latency_s", &Costs::reward_latency_s},
    {"update_s", &Costs::update_s},
    {"update_group_s", &Costs::update_group_s},
    {"publish_s", &Costs::publish_s},
    {"plan_s", &Costs::plan_s},
    {"finish_s", &Costs::finish_s},
    {"eval_s", &Costs::eval_s},
    {"checkpoint_s", &Costs::checkpoint_s},
    {"gradient_bytes", &Costs::gradient_bytes},
    {"updates", &Costs::updates},
    {"exposed_share", &Costs::exposed_share},
    {"rank_link_bytes_per_s", &Costs::rank_link_bytes_per_s},
    {"latency_s", &Costs::latency_s},
    {"weight_bytes", &Costs::weight_bytes},
    {"relay_bytes", &Costs::relay_bytes},
    {"group_bytes", &Costs::group_bytes},
    {"conditioning_bytes", &Costs::conditioning_bytes},
    {"conditioning_new_share", &Costs::conditioning_new_share},
    {"learner_link_bytes_per_s", &Costs::learner_link_bytes_per_s},
    {"worker_link_bytes_per_s", &Costs::worker_link_bytes_per_s},
    {"message_s", &Costs::message_s},
    {"worker_restart_s", &Costs::worker_restart_s},
    {"learner_restart_s", &Costs::learner_restart_s},
};

absl::Status RefuseNegative(const char* name, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("must be a finite number of at least 0: ", name, " = ", value));
}

}  // namespace

std::span<const CostField> CostFields() { return kCostFields; }

absl::Status Validate(const RunModel& model) {
  for (const CostField& field : kCostFields) {
    OXBOW_RETURN_IF_ERROR(RefuseNegative(field.name, model.costs.*field.value));
  }
  OXBOW_RETURN_IF_ERROR(RefuseNegative("failures_per_hour", model.failures_per_hour));
  OXBOW_RETURN_IF_ERROR(RefuseNegative("stalls_per_hour", model.stalls_per_hour));
  OXBOW_RETURN_IF_ERROR(RefuseNegative("stall_s", model.stall_s));
  OXBOW_RETURN_IF_ERROR(
      RefuseNegative("learner_failures_per_hour", model.learner_failures_per_hour));
  if (model.workers == 0 || model.ranks == 0 || model.groups_per_step == 0 ||
      model.groups_in_flight == 0 || model.steps == 0 || model.publish_every == 0) {
    return absl::InvalidArgumentError(
        "workers, ranks, groups, groups in flight, steps and publish_every are at least 1");
  }
  if (model.staleness_max + 1 < model.publish_every) {
    return absl::InvalidArgumentError(
        absl::StrCat("staleness_max must be at least publish_every - 1, or the run waits for "
                     "weights that never come: ",
                     model.staleness_max, " < ", model.publish_every, " - 1"));
  }
  if (model.costs.batch_s + model.costs.group_s <= 0) {
    return absl::InvalidArgumentError("group_s must be above 0: sampling takes time");
  }
  if (model.lease_s <= 0) return absl::InvalidArgumentError("lease_s must be above 0");
  for (const double share : {model.costs.straggler_share, model.silent_share,
                             model.group_failure_share, model.stragglers.quantile}) {
    if (!(share >= 0 && share < 1)) {
      return absl::InvalidArgumentError(absl::StrCat("a share is in [0, 1): ", share));
    }
  }
  if (model.costs.straggler_factor < 1) {
    return absl::InvalidArgumentError("straggler_factor is at least 1");
  }
  return absl::OkStatus();
}

double UpdateSeconds(const RunModel& model) {
  const Costs& c = model.costs;
  const uint64_t largest_share = (model.groups_per_step + model.ranks - 1) / model.ranks;
  const double ring = 2.0 * (model.ranks - 1) / model.ranks * c.gradient_bytes;
  return c.update_s + c.update_group_s * static_cast<double>(largest_share) +
         c.updates * c.exposed_share * Transfer(ring, c.rank_link_bytes_per_s);
}

bool LearnerServes(const RunModel& model, uint32_t index) {
  return model.weight_fanout == 0 || index < model.weight_fanout;
}

double FetchSeconds(const RunModel& model, uint32_t index) {
  const Costs& c = model.costs;
  const double own_link = Transfer(c.weight_bytes, c.worker_link_bytes_per_s);
  if (model.weight_fanout == 0) {
    const double shared = Transfer(model.workers * c.weight_bytes, c.learner_link_bytes_per_s);
    return 2 * c.latency_s + std::max(shared, own_link);
  }
  const double copies = std::min(model.weight_fanout, model.workers);
  const int depth = DepthOf(model.weight_fanout, index);
  const double first =
      std::max(Transfer(copies * c.weight_bytes, c.learner_link_bytes_per_s), own_link);
  if (depth == 1) return 2 * c.latency_s + first;
  // The slowest hop sets the pace; each further level starts one piece later.
  const double hop = Transfer(copies * c.weight_bytes, c.worker_link_bytes_per_s);
  const double piece = c.relay_bytes > 0 ? std::min(c.relay_bytes, c.weight_bytes) : c.weight_bytes;
  return 2 * depth * c.latency_s + std::max(first, hop) +
         (depth - 1) * Transfer(copies * piece, c.worker_link_bytes_per_s);
}

double JoinSeconds(const RunModel& model) {
  const Costs& c = model.costs;
  return 2 * c.latency_s + std::max(Transfer(c.weight_bytes, c.learner_link_bytes_per_s),
                                    Transfer(c.weight_bytes, c.worker_link_bytes_per_s));
}

}  // namespace oxbow::simulate
