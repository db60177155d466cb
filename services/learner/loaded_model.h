// Everything a run needs of its model directory, read and checked before anything starts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/image_decoder.h"
#include "core/model/parameters.h"
#include "io/prompts/encoded_prompts.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::learner {

struct LoadedModel {
  std::string architecture;  // "SD3Transformer2DModel"
  std::string transformer_config_json;
  std::string autoencoder_config_json;  // Empty: the latent is the picture.
  model::NamedTensors transformer;
  model::NamedTensors autoencoder;    // Those of the decoder.
  std::vector<int64_t> latent_shape;  // [C, H, W]
  double shift = 1;                   // Of scheduler_config.json.
  std::unique_ptr<io::EncodedPrompts> prompts;
  std::unique_ptr<model::ImageDecoder> decoder;
};

// Reads a diffusers directory for pictures of the configured size in pixels; of an autoencoder the
// decoder alone; text encoders when a prompt has to be encoded. A T5 length of 0 is that of the
// recipes. kNotFound, kDataLoss or kFailedPrecondition (another kind of model, tensors that are
// missing, extra or misshapen) name the file; kInvalidArgument for a size that the model cannot
// draw.
absl::StatusOr<LoadedModel> LoadModel(const v1::ModelConfig& config,
                                      const v1::PromptConfig& prompts,
                                      const v1::SamplingConfig& sampling);

}  // namespace oxbow::learner
