// SPDX-License-Identifier: Apache-2.0
// The policy a worker samples with: made from the first verified snapshot, updated by later ones.
//
// Nothing is in use before its probe has been compared with the learner's; what was in use stays
// so when a later snapshot is refused. Owned by the torch thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "core/model/image_decoder.h"
#include "core/model/policy.h"
#include "services/rollout/run_spec.h"
#include "services/weights/probe.h"
#include "services/weights/weight_follower.h"

namespace oxbow::rollout {

class SamplerModel {
 public:
  explicit SamplerModel(const RunSpec& spec);

  // Loads a snapshot and probes it. `comparison` says how the probe came out. On error, or if torch
  // throws, the model is as before. kFailedPrecondition if the frozen part is another than that of
  // the snapshot in use: within an epoch it never changes.
  absl::Status Apply(const weights::VerifiedSnapshot& snapshot,
                     weights::ProbeComparison& comparison);

  // Calls `draw` with the network of these weights, then goes back to those in use. Weights that
  // are in use are not loaded again. On error `draw` was not called. Requires ready(). If torch
  // throws, the weights in use are back as well.
  absl::Status With(const weights::VerifiedSnapshot& other,
                    const std::function<void(const model::VelocityModel&)>& draw);

  bool ready() const { return version_.has_value(); }
  PolicyVersion version() const { return *version_; }                       // Requires ready().
  const model::VelocityModel& model() const { return policy_->current(); }  // Requires ready().
  const model::ImageDecoder& decoder() const { return *decoder_; }          // Requires ready().

 private:
  absl::Status Load(const weights::VerifiedSnapshot& snapshot);
  void KeepTrained(const weights::VerifiedSnapshot& snapshot);
  bool InUse(const weights::VerifiedSnapshot& other) const;
  absl::Status Probe(const v1::SnapshotManifest::Probe& expected,
                     weights::ProbeComparison& comparison) const;

  const RunSpec& spec_;
  // Null until a snapshot was accepted.
  std::unique_ptr<model::Policy> policy_;
  std::unique_ptr<model::ImageDecoder> decoder_;
  std::optional<PolicyVersion> version_;
  std::string base_sha256_;  // The hash of the frozen part in use.
  // The trained part in use, in the chunks that the worker holds of it anyway. Empty unless the
  // learner leases held-out pictures.
  weights::VerifiedSnapshot trained_;
};

}  // namespace oxbow::rollout
