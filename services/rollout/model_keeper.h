// The policy a worker samples with: made from the first verified snapshot, updated by later ones.
//
// Nothing is in use before its probe has been compared with the learner's. Owned by the torch
// thread.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "core/model/policy.h"
#include "services/rollout/run_spec.h"
#include "services/weights/probe.h"
#include "services/weights/weight_follower.h"

namespace oxbow::rollout {

class ModelKeeper {
 public:
  explicit ModelKeeper(const RunSpec& spec);

  // Loads a snapshot and probes it. `comparison` says how the probe came out. On error the weights
  // are in an unknown state and ready() is false until a later snapshot is applied.
  absl::Status Apply(const weights::VerifiedSnapshot& snapshot,
                     weights::ProbeComparison& comparison);

  bool ready() const { return version_.has_value(); }
  PolicyVersion version() const { return *version_; }                       // Requires ready().
  const model::VelocityModel& model() const { return policy_->current(); }  // Requires ready().

 private:
  absl::Status Load(const weights::VerifiedSnapshot& snapshot);

  const RunSpec& spec_;
  std::unique_ptr<model::Policy> policy_;
  std::optional<PolicyVersion> version_;
};

}  // namespace oxbow::rollout
