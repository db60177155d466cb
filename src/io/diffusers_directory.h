// SPDX-License-Identifier: Apache-2.0
// A model as a diffusers directory: model_index.json and one folder per component.
//
//   model_index.json      {"transformer": ["diffusers", "SD3Transformer2DModel"], ...}
//   transformer/, vae/    config.json  diffusion_pytorch_model.safetensors (or sharded, or fp16)
//   text_encoder/, _2/, _3/     config.json  model.safetensors (the same)
//   tokenizer/, _2/, _3/        vocab.json  merges.txt  or  spiece.model ...
//   scheduler/            scheduler_config.json
//
// The class name of a component says which implementation reads it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/flow/schedule.h"
#include "io/safetensors.h"
#include "io/weight_files.h"

namespace oxbow::io {

// A component that a directory of a supported pipeline may hold. A model whose transformer is an
// architecture of its own (core/model/architecture_table.cc) is a row of pipeline_table.cc; one
// whose prompts are encoded in a way of its own also is a row of prompts/text_side_table.cc.
struct PipelineComponent {
  std::string name;  // Its folder, and its key in model_index.json.
  std::string class_name;
  std::string config_file;   // Empty: the component reads its files itself.
  std::string weights_base;  // Empty: it has no weights.
  bool required = false;
};

// A value in a file of the directory; no file: nothing is known.
struct DistilledSign {
  std::string file;  // "scheduler/scheduler_config.json"
  std::string key;
  std::string value;              // As JSON.
  bool ignores_guidance = false;  // The pipeline does no classifier-free guidance then.
};

struct Pipeline {
  std::string class_name;  // model_index.json's _class_name.
  std::string text_side;   // How prompts become conditioning: a name of TextSideTable.
  std::vector<PipelineComponent> components;  // Transformer, text side and decoder among them.
  std::vector<std::string> absent;            // Components that are only ever declared as absent.
  // Keys of the transformer's config that are null, or absent, in the models this is for.
  std::vector<std::string> transformer_without = {};
  // The grid of noise levels that it hands to FlowMatchEulerDiscreteScheduler.
  flow::ScheduleKind grid = flow::ScheduleKind::kDiffusersDefault;
  // A dynamic time shift follows the steps as well, by FLUX.2's rule.
  bool shift_by_steps = false;
  // How a directory says that its model is distilled to few steps.
  DistilledSign distilled = {};
  // From its own scale of guidance by a second forward pass (guidance_scale, or true_cfg_scale) to
  // s of the usual formula, v_negative + s (v_prompt - v_negative).
  double guidance_offset = 0;
};

// s of the usual formula for a pipeline's own scale. 1, where it follows the prompt alone, for
// every scale up to it: no pipeline guides by less.
double GuidanceScale(const Pipeline& pipeline, double guidance);

// One row per pipeline, the first for directories that do not say their pipeline.
// pipeline_table.cc defines nothing else, so that a binary which defines its own table takes that.
const std::vector<Pipeline>& PipelineTable();

struct DiffusersComponent {
  std::string class_name;  // "SD3Transformer2DModel"
  std::filesystem::path directory;
  std::string config_json;   // config.json or scheduler_config.json; empty for a tokenizer.
  std::string weights_base;  // "diffusion_pytorch_model" or "model"; empty without weights.
};

// Components by folder name: all that the pipeline's row of pipeline_table.cc requires, and
// others of that row where the model has them.
using DiffusersComponents = std::map<std::string, DiffusersComponent>;

// Reads model_index.json and the configs, no weights. kNotFound for a missing file, kDataLoss for
// broken JSON, kFailedPrecondition for a class or component that is not supported, naming those
// that are.
absl::StatusOr<DiffusersComponents> OpenDiffusersDirectory(const std::filesystem::path& directory);

// The first row with this transformer: pipelines that share one have one text side.
// kFailedPrecondition if none has it.
absl::StatusOr<const Pipeline*> PipelineOf(const DiffusersComponents& components);

// The sign by which a directory is a distilled model; nothing for others, and for a directory that
// OpenDiffusersDirectory refuses.
std::optional<DistilledSign> DistilledBy(const std::filesystem::path& directory);

// The tensors of a component that has weights.
absl::StatusOr<WeightFiles> OpenComponentWeights(const DiffusersComponent& component);

// Their headers: what is there and whether it is whole, without reading it.
absl::StatusOr<std::map<std::string, TensorHeader>> ReadComponentHeaders(
    const DiffusersComponent& component);

// `status` with the file or directory it is about. kInvalidArgument becomes kFailedPrecondition: a
// file that is there but is not what it should be is a data error, not a usage error.
absl::Status DataError(const absl::Status& status, const std::filesystem::path& where);

}  // namespace oxbow::io
