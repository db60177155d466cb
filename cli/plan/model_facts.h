// What a model directory says about itself without its weights being read: sizes from the headers
// of its safetensors files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/safetensors.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {

struct ModelFacts {
  uint64_t transformer_parameters = 0;
  uint64_t trained_parameters = 0;    // All but the position table, or those of the LoRA matrices.
  uint64_t text_encoder_bytes = 0;    // In memory: T5 as it is stored, if in 16 bits; else float32.
  uint64_t decoder_parameters = 0;    // Of an autoencoder.
  double shift = 1;                   // sampling.shift, or the scheduler's own.
  std::vector<int64_t> latent_shape;  // [C, H, W]
  int64_t prompt_tokens = 0;
  uint64_t conditioning_bytes = 0;  // Of one prompt, as it travels and is stored: float32.
  std::string transformer_config_json;
};

// kNotFound, kDataLoss or kFailedPrecondition with the file's name: missing, truncated or not
// supported.
absl::StatusOr<ModelFacts> ReadModelFacts(const v1::RunConfig& config);

// rank * (in + out) over the linear layers that `lora` targets. kInvalidArgument for a target that
// matches none.
absl::StatusOr<uint64_t> LoraParameters(const std::map<std::string, io::TensorHeader>& tensors,
                                        const v1::LoraConfig& lora);

}  // namespace oxbow::cli
