// A forward on fixed inputs: proof that a worker computes what the learner
// computes.
//
// Inputs come from counter-based noise keyed by the probe's seed, so both sides
// make the same ones. Equal bits are the rule on equal machines; other machines
// may differ within the tolerance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/velocity_model.h"
#include "oxbow/v1/weight_channel.pb.h"

namespace oxbow::weights {

struct ProbeShape {
  std::vector<int64_t> latent;  // [C, H, W]
  int64_t token_width = 0;
  int64_t pooled_width = 0;
  int64_t tokens = 4;  // Of a prompt; a guided model wants as many as its negative prompt has.
};

// Widths from the transformer's config.json (joint_attention_dim,
// pooled_projection_dim). kInvalidArgument names the key that is missing.
absl::StatusOr<ProbeShape> ProbeShapeOf(const std::string& transformer_config_json,
                                        const std::vector<int64_t>& latent_shape);

// Digest and leading outputs of a batch of three noise levels.
v1::SnapshotManifest::Probe RunProbe(const model::VelocityModel& model, const ProbeShape& shape,
                                     uint64_t seed, double tolerance = 1e-4);

struct ProbeComparison {
  bool bits_equal = false;
  double difference_max = 0;  // Over the leading outputs; infinite if they cannot be compared.
};
ProbeComparison CompareProbes(const v1::SnapshotManifest::Probe& expected,
                              const v1::SnapshotManifest::Probe& actual);

// OK if bits are equal or the difference is within the expected probe's
// tolerance; else kDataLoss.
absl::Status JudgeProbe(const v1::SnapshotManifest::Probe& expected,
                        const ProbeComparison& comparison);

}  // namespace oxbow::weights
