// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/run_spec.h"

#include <algorithm>

#include "base/json.h"
#include "base/status_macros.h"
#include "config/chosen_method.h"
#include "config/memory_parts.h"
#include "core/model/image_sampler.h"
#include "nlohmann/json.hpp"
#include "rpc/convert_torch.h"
#include "run/sampling_spec.h"
#include "run/trainer_options.h"

namespace oxbow::rollout {
namespace {

// A transformer's config.json names its class.
absl::StatusOr<std::shared_ptr<const model::Architecture>> ArchitectureOf(
    const std::string& config_json, const std::string& graph_json) {
  const nlohmann::json config = ParseJson(config_json);
  if (!config.is_object() || !config.contains("_class_name") ||
      !config["_class_name"].is_string()) {
    return absl::InvalidArgumentError("the learner's transformer config has no _class_name");
  }
  return model::ReadArchitecture(
      {config["_class_name"].get<std::string>(), config_json, graph_json});
}

// Weights that change in flight were not tried with recordings.
bool GraphsWin(const v1::RunConfig& config, const RunSpec& spec) {
  if (spec.in_flight_updates) return false;
  const int64_t samples = config.batch().group_size();
  const int64_t rows = spec.sampling.guidance == 1 ? samples : 2 * samples;
  const int64_t most = spec.rows_per_forward > 0 ? std::min(rows, spec.rows_per_forward) : rows;
  return model::LaunchesCount(*spec.architecture, spec.latent_shape, most);
}

template <typename Repeated>
std::vector<std::string> Strings(const Repeated& values) {
  return {values.begin(), values.end()};
}

}  // namespace

absl::StatusOr<RunSpec> RunSpecFrom(const v1::RegisterResponse& response) {
  const v1::RunConfig& config = response.config();
  RunSpec spec;
  spec.epoch = Epoch(response.epoch());
  spec.run_id = response.run_id();
  spec.run_seed = config.run().seed();
  OXBOW_ASSIGN_OR_RETURN(spec.sampling, run::SamplingSpecFromConfig(config.sampling()));
  OXBOW_ASSIGN_OR_RETURN(spec.storage, run::StorageFromConfig(config.sampling()));
  OXBOW_ASSIGN_OR_RETURN(spec.architecture, ArchitectureOf(response.transformer_config_json(),
                                                           response.transformer_graph_json()));
  if (spec.sampling.guidance != 1) {
    auto negative =
        rpc::ConditioningFromProto(response.negative(), spec.architecture->conditioning());
    if (!negative.ok()) return Annotate(negative.status(), "the negative prompt");
    spec.negative = *std::move(negative);
  }
  spec.shared_start = config.sampling().noise() == v1::SHARING_GROUP;
  spec.branches = std::max(1u, config.replay().branches());
  spec.sde_tail = config.sampling().tail() == v1::TAIL_KIND_SDE;
  spec.duplicate_radius = config.method().diversity().radius();
  spec.in_flight_updates = config.off_policy().in_flight_updates();
  spec.rows_per_forward = config.sampling().rows_per_forward();
  spec.sent = run::SentLatentsOf(config);
  spec.latent_shape = {response.latent_shape().begin(), response.latent_shape().end()};
  OXBOW_RETURN_IF_ERROR(model::CheckDimensions(spec.architecture->latent(), spec.latent_shape));

  if (response.has_held_out()) {
    const v1::HeldOutSampling& held_out = response.held_out();
    if (held_out.sigmas_size() < 2) {
      return absl::InvalidArgumentError("held-out pictures of no denoising step");
    }
    OXBOW_ASSIGN_OR_RETURN(const flow::SolverKind solver, run::SolverOf(held_out.solver()));
    spec.held_out = model::OdeSpec({held_out.sigmas().begin(), held_out.sigmas().end()}, solver);
    spec.held_out_shape = {held_out.latent_shape().begin(), held_out.latent_shape().end()};
    OXBOW_RETURN_IF_ERROR(model::CheckDimensions(spec.architecture->latent(), spec.held_out_shape));
  }

  spec.autoencoder_config_json = response.autoencoder_config_json();
  spec.autoencoder_graph_json = response.autoencoder_graph_json();
  OXBOW_ASSIGN_OR_RETURN(
      spec.compute,
      run::ScalarTypeFromConfig(config::RolloutType(config.model()), "model.compute_dtype"));
  spec.base_weights = run::BaseWeightsOf(config.model());
  if (config.model().trained() == v1::TRAINED_PART_LORA) spec.trained = model::Trained::kLora;
  spec.merged = spec.trained == model::Trained::kLora && config.model().lora().merge_for_rollouts();
  spec.graphs_optional = config.model().cuda_graphs() == v1::CUDA_GRAPHS_AUTO;
  spec.graphs = spec.graphs_optional ? GraphsWin(config, spec)
                                     : config.model().cuda_graphs() == v1::CUDA_GRAPHS_TRUE;
  spec.lora.rank = config.model().lora().rank();
  spec.lora.alpha = config.model().lora().alpha();
  spec.lora.targets = Strings(config.model().lora().targets());

  spec.reward = config.reward();
  spec.reward_endpoints = Strings(response.reward_endpoints());
  for (const auto& [name, identity] : response.reward_identities()) {
    spec.reward_identities[name] = identity;
  }
  spec.sink_endpoints = Strings(response.sink_endpoints());
  spec.buffer_endpoints = Strings(response.buffer_endpoints());
  spec.weight_endpoints = Strings(response.weight_endpoints());
  if (spec.sink_endpoints.empty() || spec.weight_endpoints.empty() ||
      spec.reward_endpoints.empty()) {
    return absl::InvalidArgumentError("the learner named no sink, weight or reward endpoint");
  }
  spec.groups_in_flight = std::max(1u, config.services().groups_in_flight());
  spec.lease_time = absl::Seconds(response.lease_seconds());
  spec.rpc_timeout = absl::Seconds(std::max(1u, config.services().rpc_timeout_seconds()));
  return spec;
}

}  // namespace oxbow::rollout
