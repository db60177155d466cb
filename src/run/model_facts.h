// SPDX-License-Identifier: Apache-2.0
// Facts of a model directory without its weights being read: sizes from the headers
// of its safetensors files; and scales of guidance that fit the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/validate.h"
#include "core/model/architecture.h"
#include "core/model/decoder_architecture.h"
#include "io/diffusers_directory.h"
#include "io/safetensors.h"
#include "io/scheduler.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

struct ModelFacts {
  std::shared_ptr<const model::Architecture> architecture;
  uint64_t transformer_parameters = 0;
  uint64_t trained_parameters = 0;    // All but the buffers, or those of the LoRA matrices.
  uint64_t lora_rank_useful = 0;      // The narrowest adapted layer's; 0: no LoRA.
  uint64_t adapted_parameters = 0;    // In layers that a LoRA adapts.
  uint64_t text_encoder_bytes = 0;    // In memory: T5 as it is stored, if in 16 bits; else float32.
  uint64_t decoder_parameters = 0;    // The autoencoder's.
  io::PipelineSchedule schedule;      // With sampling.shift, if it is set. See ResolveSampling.
  double guidance = 1;                // sampling.guidance in the usual formula; io::GuidanceScale.
  std::vector<int64_t> latent_shape;  // [C, H, W] or [C, F, H, W]
  std::vector<int64_t> evaluated_shape;           // The same of evaluation's pictures.
  model::LatentFactors factors;                   // The decoder's.
  std::map<std::string, io::DType> stored_types;  // The transformer's tensors in its files.
  int64_t prompt_tokens = 0;
  uint64_t conditioning_bytes = 0;   // One prompt's in float32; it may travel in less.
  uint64_t stored_prompt_bytes = 0;  // The same in prompts.cache.
  std::shared_ptr<const model::DecoderArchitecture> decoder;  // Null: the latent is the image.
};

// kNotFound, kDataLoss or kFailedPrecondition with the file's name: missing, truncated or not
// supported. kInvalidArgument for a size that the model cannot draw.
absl::StatusOr<ModelFacts> ReadModelFacts(const v1::RunConfig& config);

// The size of pictures that a run's config asks for.
model::PictureSize PictureSizeOf(const v1::SamplingConfig& sampling);

// Facts that follow from a size of pictures.
struct DrawnSize {
  std::vector<int64_t> latent_shape;  // [C, H, W] or [C, F, H, W]
  io::PipelineSchedule schedule;      // With sampling.shift, if it is set. See ResolveSampling.
};

// kInvalidArgument for a size that the model cannot draw; kFailedPrecondition for a scheduler that
// is not supported.
absl::StatusOr<DrawnSize> DrawnSizeOf(const io::DiffusersComponents& components,
                                      const model::Architecture& architecture,
                                      const model::LatentFactors& factors,
                                      const v1::SamplingConfig& sampling);

// The size of evaluation's pictures (EvaluationSampling). Errors name eval.height.
absl::StatusOr<DrawnSize> EvaluatedSizeOf(const io::DiffusersComponents& components,
                                          const model::Architecture& architecture,
                                          const model::LatentFactors& factors,
                                          const v1::RunConfig& config);

// How many samples an evaluation draws together: model::SamplesAtOnce, and fewer of larger pictures
// than those of training, in proportion, so that they take about as much memory.
int64_t EvaluatedAtOnce(const std::vector<int64_t>& trained, const std::vector<int64_t>& evaluated);

// Pictures of an evaluation that a worker draws together, those of a lease: no more than a group
// has. On a GPU a row's bits depend on the rows beside it: there a deterministic run has leases of
// EvaluatedAtOnce, whatever its groups are.
int64_t PicturesOfLease(const v1::RunConfig& config, const std::vector<int64_t>& trained,
                        const std::vector<int64_t>& evaluated);

// The autoencoder that vae/config.json describes. kInvalidArgument.
absl::StatusOr<std::shared_ptr<const model::DecoderArchitecture>> DecoderOf(
    const io::DiffusersComponent& vae);

// The architecture of the transformer's class and config.json. kFailedPrecondition names the file.
absl::StatusOr<std::shared_ptr<const model::Architecture>> ArchitectureOf(
    const io::DiffusersComponent& transformer);

// Puts the architecture's own layers of adapters in the place of no model.lora.targets, if an
// adapter trains. What reads the targets of a run needs this first.
void FillLoraTargets(const model::Architecture& architecture, v1::ModelConfig& config);

struct LoraSize {
  uint64_t parameters = 0;   // rank * (in + out) over the linear layers that `lora` targets.
  uint64_t rank_useful = 0;  // Their smallest min(in, out): a higher rank adds nothing.
  uint64_t adapted = 0;      // in * out over the same layers.
};

// kInvalidArgument, in the words of model.lora.targets, for a target that matches no layer.
absl::StatusOr<LoraSize> LoraSizeOf(const std::map<std::string, io::TensorHeader>& tensors,
                                    const v1::LoraConfig& lora);

// The scale of guidance that a network takes as an input, such as FLUX.1-dev's: not classifier-free
// guidance, which is sampling.guidance and asks the network twice.
//
// Execution::embedded_guidance of a run: sampling.embedded_guidance, or the architecture's
// own where that is 0; 0 for a network that takes none. A resolved config resolves to itself.
// kInvalidArgument names the key: it is set and the network takes none, or neither it nor the
// network's graph says a scale.
absl::StatusOr<double> EmbeddedGuidance(const model::Architecture& architecture,
                                        const v1::SamplingConfig& config);

// Settings that destroy a model distilled to few steps, which was never trained to recover from
// noise that a step adds, and has its guidance within (docs/models.md): a warning for large noise
// and for guidance, `guidance` in the usual formula (io::GuidanceScale); nothing for models that
// are not distilled.
std::vector<config::Problem> CheckDistilled(const std::filesystem::path& model,
                                            const v1::SamplingConfig& sampling, double guidance);

// kInvalidArgument, in the words of sampling.guidance, for a scale that the model's pipeline would
// ignore: pictures with it would not be those of the pipeline.
absl::Status CheckTakesGuidance(const std::filesystem::path& model, double guidance);

}  // namespace oxbow::run
