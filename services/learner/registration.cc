// SPDX-License-Identifier: Apache-2.0
#include "services/learner/registration.h"

#include <ATen/ATen.h>

#include "base/status_macros.h"
#include "rpc/convert_torch.h"

namespace oxbow::learner {

v1::RegisterResponse RegistrationOf(const RunSetup& setup, Epoch epoch,
                                    const RunEndpoints& endpoints) {
  v1::RegisterResponse registration;
  registration.set_epoch(epoch.value);
  registration.set_run_id(RunIdOf(setup, epoch));
  *registration.mutable_config() = setup.config;
  registration.set_transformer_config_json(setup.model.transformer_config_json);
  registration.set_transformer_graph_json(setup.model.architecture->graph_json());
  registration.set_autoencoder_config_json(setup.model.autoencoder_config_json);
  registration.set_autoencoder_graph_json(setup.model.autoencoder_graph_json);
  if (!setup.negative.empty()) {
    *registration.mutable_negative() = rpc::ToProto(setup.negative);
  }
  for (const std::string& sink : endpoints.sinks) registration.add_sink_endpoints(sink);
  registration.add_weight_endpoints(endpoints.learner);
  for (const std::string& reward : endpoints.rewards) registration.add_reward_endpoints(reward);
  for (const std::string& buffer : endpoints.buffers) registration.add_buffer_endpoints(buffer);
  registration.set_lease_seconds(setup.config.services().lease_seconds());
  for (const int64_t size : setup.model.latent_shape) registration.add_latent_shape(size);
  return registration;
}

absl::Status AddHeldOut(const RunSetup& setup, v1::RegisterResponse& registration) {
  if (setup.held_out.empty()) return absl::OkStatus();
  OXBOW_ASSIGN_OR_RETURN(const flow::SamplingSpec spec, EvaluationSpecOf(setup));
  v1::HeldOutSampling& held_out = *registration.mutable_held_out();
  for (const double sigma : spec.sigmas) held_out.add_sigmas(sigma);
  held_out.set_solver(setup.config.eval().solver());
  for (const int64_t size : setup.evaluated_shape) held_out.add_latent_shape(size);
  return absl::OkStatus();
}

}  // namespace oxbow::learner
