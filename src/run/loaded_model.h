// SPDX-License-Identifier: Apache-2.0
// Everything a run needs of its model directory, read and checked before anything starts.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/architecture.h"
#include "core/model/image_decoder.h"
#include "core/model/named_tensors.h"
#include "core/model/policy.h"
#include "io/diffusers_directory.h"
#include "io/prompts/encoded_prompts.h"
#include "io/scheduler.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

struct LoadedModel {
  std::shared_ptr<const model::Architecture> architecture;
  std::string transformer_config_json;
  std::string autoencoder_config_json;  // Empty: the latent is the image.
  std::string autoencoder_graph_json;   // Empty for a class that needs none.
  model::ReadTensor read_transformer;   // For Policy::Options::read_base.
  model::NamedTensors autoencoder;      // The decoder's tensors.
  std::vector<int64_t> latent_shape;    // [C, H, W] or [C, F, H, W]
  io::PipelineSchedule schedule;        // With sampling.shift, if it is set. See ResolveSampling.
  double guidance = 1;                  // In the usual formula; io::GuidanceScale.
  double embedded_guidance = 0;         // Resolved; see model_facts.h.
  io::DiffusersComponents components;
  model::LatentFactors factors;  // The decoder's.
  std::unique_ptr<io::EncodedPrompts> prompts;
  std::unique_ptr<model::ImageDecoder> decoder;
};

// Reads a diffusers directory for images of the configured size in pixels; of an autoencoder only
// the decoder; text encoders when a prompt has to be encoded. A T5 length of 0 is that of the
// recipes. kNotFound, kDataLoss or kFailedPrecondition (another kind of model, tensors that are
// missing, extra or misshapen) name the file; kInvalidArgument for a size that the model cannot
// draw, or a scale of guidance that it or its pipeline does not take. The transformer's tensors are
// read when a policy asks for them, which fails in the same way if a value is none: no process has
// a model twice.
absl::StatusOr<LoadedModel> LoadModel(const v1::ModelConfig& config,
                                      const v1::PromptConfig& prompts,
                                      const v1::SamplingConfig& sampling);

struct LoadedDecoder {
  std::string config_json;  // Empty without an autoencoder: the latent is the image.
  std::string graph_json;   // Empty for a class that needs none.
  model::LatentFactors factors;
  model::NamedTensors tensors;
  std::unique_ptr<model::ImageDecoder> decoder;
};

// Reads what turns latents of `channels` into images, without transformer and text encoders.
// Errors name the file as LoadModel's do; kFailedPrecondition if the autoencoder is for latents of
// other channels.
absl::StatusOr<LoadedDecoder> LoadDecoder(const io::DiffusersComponents& components,
                                          int64_t channels, at::Device device);

}  // namespace oxbow::run
