// SPDX-License-Identifier: Apache-2.0
// A forward pass on fixed inputs: proof that a worker computes what the learner computes.
//
// Inputs come from counter-based noise keyed by the probe's seed, so both sides make the same ones.
// Equal bits are the rule on equal machines; other machines may differ within the tolerance.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/architecture.h"
#include "core/model/velocity_model.h"
#include "oxbow/v1/weight_channel.pb.h"

namespace oxbow::weights {

struct ProbeShape {
  std::vector<int64_t> latent;  // [C, H, W] or [C, F, H, W]
  std::vector<model::ConditioningPart> parts;
  int64_t tokens = 4;  // In a prompt; a guided model wants as many as its negative prompt has.
};

// `negative`: the negative prompt; empty without guidance. kInvalidArgument for latents that are
// not the architecture's.
absl::StatusOr<ProbeShape> ProbeShapeOf(const model::Architecture& architecture,
                                        const std::vector<int64_t>& latent_shape,
                                        const model::Conditioning& negative);

// Digest and leading outputs of a batch of three noise levels.
v1::SnapshotManifest::Probe RunProbe(const model::VelocityModel& model, const ProbeShape& shape,
                                     uint64_t seed, double tolerance = 1e-4);

struct ProbeComparison {
  bool bits_equal = false;
  double difference_max = 0;  // Over the leading outputs; infinite if they cannot be compared.
};
ProbeComparison CompareProbes(const v1::SnapshotManifest::Probe& expected,
                              const v1::SnapshotManifest::Probe& actual);

// OK if bits are equal or the difference is within the expected probe's tolerance; else kDataLoss.
absl::Status JudgeProbe(const v1::SnapshotManifest::Probe& expected,
                        const ProbeComparison& comparison);

}  // namespace oxbow::weights
