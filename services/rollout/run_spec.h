// SPDX-License-Identifier: Apache-2.0
// A worker's knowledge of its run: the answer to Register, checked and converted once.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "core/flow/dynamics.h"
#include "core/flow/window.h"
#include "core/model/architecture.h"
#include "core/model/policy.h"
#include "oxbow/v1/coordinator.pb.h"

namespace oxbow::rollout {

struct RunSpec {
  Epoch epoch;
  std::string run_id;
  uint64_t run_seed = 0;

  flow::SamplingSpec sampling;  // Its flags: all steps that a lease may make stochastic.
  at::ScalarType storage = at::kFloat;
  bool shared_start = false;  // The fresh members of a group start from the same noise.
  bool sde_tail = false;      // How tails of replayed heads are regenerated.
  uint32_t branches = 1;      // Members of a group that go on from its replayed head.
  flow::SentLatents sent = flow::SentLatents::kTransitions;
  bool in_flight_updates = false;     // New weights take over between two steps of a group.
  int64_t rows_per_forward = 0;       // Rows of the network at a time; 0: no limit.
  double duplicate_radius = 0;        // Two images of a group within it are near duplicates.
  std::vector<int64_t> latent_shape;  // [C, H, W]

  std::shared_ptr<const model::Architecture> architecture;
  std::string autoencoder_config_json;  // Empty: the latent is the image.
  std::string autoencoder_graph_json;   // Empty for a class that needs none.
  model::Trained trained = model::Trained::kFull;
  model::LoraSpec lora;
  // The worker's own, which the learner does not know; see Worker::Options.
  std::string worker_id;
  at::Device device = at::kCPU;
  bool weights_on_host = false;
  std::string lent_base;         // Where learner ranks lend their base; empty: nowhere.
  bool merged = false;           // The adapter is added to the weights it changes.
  bool graphs = false;           // Forward passes are recorded as CUDA graphs.
  bool graphs_optional = false;  // But not where they cannot be.
  at::ScalarType compute = at::kFloat;
  model::BaseWeights base_weights = model::BaseWeights::kCompute;
  model::Conditioning negative;  // Defined with guidance.

  // How held-out pictures are drawn; without noise levels, the learner leases none.
  flow::SamplingSpec held_out;
  std::vector<int64_t> held_out_shape;

  v1::RewardConfig reward;
  std::vector<std::string> reward_endpoints;
  std::map<std::string, std::string> reward_identities;  // See RegisterResponse.
  std::vector<std::string> sink_endpoints;
  std::vector<std::string> buffer_endpoints;
  std::vector<std::string> weight_endpoints;
  uint32_t groups_in_flight = 2;
  absl::Duration rpc_timeout;
  absl::Duration lease_time;  // A lease lives as long without renewal.
};

// kInvalidArgument names what is missing or cannot be served by this worker.
absl::StatusOr<RunSpec> RunSpecFrom(const v1::RegisterResponse& response);

}  // namespace oxbow::rollout
