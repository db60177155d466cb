// SPDX-License-Identifier: Apache-2.0
// SD3 / SD3.5 transformer (MMDiT, arXiv:2403.03206), as diffusers' SD3Transformer2DModel.
//
// Image patches and prompt tokens attend jointly; every block is modulated by (timestep, pooled
// prompt):
//
//   X = patches(x) Wp + cropped position table        c = MLP(sincos(1000 sigma)) + MLP(pooled)
//   Y = tokens Wc                                     for each block: (X, Y) = block(X, Y, silu(c))
//   v = unpatch(LN(X) * (1 + scale) + shift)          scale, shift = Linear(silu(c))
//
// Weights have their published names, so loading is binding. Any published size fits: dual
// attention layers and RMS-normed queries and keys come from config.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/architecture.h"
#include "core/model/lora.h"
#include "core/model/parameters.h"
#include "core/model/velocity_model.h"

namespace oxbow::model {

// Keys and defaults of transformer/config.json.
struct Sd3Params {
  int64_t sample_size = 128;
  int64_t patch_size = 2;
  int64_t in_channels = 16;
  int64_t num_layers = 18;
  int64_t attention_head_dim = 64;
  int64_t num_attention_heads = 18;
  int64_t joint_attention_dim = 4096;
  int64_t caption_projection_dim = 1152;
  int64_t pooled_projection_dim = 2048;
  int64_t out_channels = 16;
  int64_t pos_embed_max_size = 96;
  std::vector<int64_t>
      dual_attention_layers;  // Indices of blocks with a second, image-only attention.
  bool qk_rms_norm = false;   // "qk_norm": "rms_norm" or null.

  int64_t width() const { return num_attention_heads * attention_head_dim; }
};

inline constexpr char kSd3ClassName[] = "SD3Transformer2DModel";

// The position table: in every checkpoint, never trained.
inline constexpr char kSd3PositionTable[] = "pos_embed.pos_embed";

// Keys starting with '_' are ignored; other unknown keys are errors unless null. kInvalidArgument.
absl::StatusOr<Sd3Params> ParseSd3Config(const std::string& config_json);
std::string Sd3ConfigJson(const Sd3Params& params);  // As diffusers writes it.

// Conditioning: kPromptTokens [S, joint_attention_dim], kPooledPrompt [pooled_projection_dim].
std::shared_ptr<const Architecture> MakeSd3Architecture(Sd3Params params);

// Errors as ParseSd3Config.
absl::StatusOr<std::shared_ptr<const Architecture>> ReadSd3Architecture(
    const std::string& config_json);

// Name -> shape of every tensor of a checkpoint, the position table included.
Shapes Sd3Shapes(const Sd3Params& params);

// Module name -> width in and out of every linear layer: what a LoRA adapter can attach to.
LinearModules Sd3Linears(const Sd3Params& params);

// Bytes that a forward pass keeps for its backward pass, counted by hand from the network: an upper
// bound, known before any memory is taken. The peak of the backward pass is within a quarter of it.
// Casts of weights are not counted. An adapter keeps less than all weights.
uint64_t Sd3ActivationBytes(const Sd3Params& params, const Execution& execution,
                            const ForwardSize& size);

// Bytes that a forward pass without gradients holds at most, beside the weights, by the same count.
uint64_t Sd3SamplingBytes(const Sd3Params& params, const Execution& execution,
                          const ForwardSize& size);

// As Architecture::Make. Forward is thread-compatible.
absl::StatusOr<std::unique_ptr<VelocityModel>> MakeSd3Transformer(
    const Sd3Params& params, const NamedTensors& tensors, const LoraAdapter* adapter = nullptr,
    Execution execution = {});

}  // namespace oxbow::model
