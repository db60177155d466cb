// SPDX-License-Identifier: Apache-2.0
// A pretrained model as a genuine diffusers directory.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "tasks/pretraining/networks.h"

namespace oxbow::cli {

struct PretrainedModel {
  const tasks::TaskTensors& task;
  const tasks::Networks& networks;
  std::string pipeline;  // A class of io::PipelineTable.
  // config.json, and the exported graph where there is one: file name -> content.
  std::map<std::string, std::string> transformer_files;
};

// Writes what diffusers and transformers load component by component, and what every oxbow process
// reads.
//
//   model_index.json
//   transformer/       config.json, diffusion_pytorch_model.safetensors, perhaps graph.json.gz
//   text_encoder/, _2/ config.json, model.safetensors
//   tokenizer/         vocab.json, merges.txt, tokenizer_config.json, special_tokens_map.json
//   tokenizer_2/       tokenizer.json, tokenizer_config.json
//   scheduler/         scheduler_config.json
//
// Writes beside `directory` and renames, so that it is there wholly or not at all. An existing
// directory is kInvalidArgument unless `replace`.
absl::Status WritePretrainedDirectory(const std::filesystem::path& directory,
                                      const PretrainedModel& model,
                                      const tasks::ComponentWeights& weights, bool replace);

}  // namespace oxbow::cli
