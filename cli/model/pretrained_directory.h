// Writes a pretrained model of a synthetic task as a genuine diffusers directory: what diffusers
// and transformers load component by component, and what every oxbow process reads.
//
//   model_index.json
//   transformer/   config.json, diffusion_pytorch_model.safetensors
//   text_encoder/  config.json, model.safetensors
//   tokenizer/     vocab.json, merges.txt, tokenizer_config.json, special_tokens_map.json
//   scheduler/     scheduler_config.json
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "core/model/parameters.h"
#include "tasks/pretraining/task_tensors.h"

namespace oxbow::cli {

// The scheduler's shift: a small image needs none.
inline constexpr double kPretrainedShift = 1.0;

// Writes beside `directory` and renames, so that it is there wholly or not at all. An existing
// directory is kInvalidArgument unless `replace`.
absl::Status WritePretrainedDirectory(const std::filesystem::path& directory,
                                      const tasks::TaskTensors& task,
                                      const model::NamedTensors& transformer,
                                      const model::NamedTensors& text, bool replace);

}  // namespace oxbow::cli
