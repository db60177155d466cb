// SPDX-License-Identifier: Apache-2.0
// Golden files of tools/make_model_goldens.py and make_sd3_goldens.py, and what closeness to them
// means.
//
// They lie in tests/golden/models, or in the directory named by OXBOW_MODEL_GOLDENS, whose own
// files of each kind are then tested instead.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/model/architecture.h"
#include "core/model/parameters.h"

namespace oxbow::model {

// Both sides are float32 with sums in different orders, which depend on the processor; nothing else
// may differ.
inline constexpr double kOutputTolerance = 3e-5;
inline constexpr double kGradientTolerance = 1e-4;

// Names of the files "{kind}_*.safetensors", without the ending, sorted.
std::vector<std::string> GoldenNames(const std::string& kind);

// The content of any other file of the directory.
std::filesystem::path GoldenPath(const std::string& file);

// A golden file's tensors by section, and the model's config.json.
struct Golden {
  explicit Golden(const std::string& name);

  // The transformer of the graph beside the file.
  std::shared_ptr<const Architecture> Network() const;

  std::string name;
  std::string config;
  std::map<std::string, std::string> metadata;
  NamedTensors weights, in, out, gradients, adapter;
};

void ExpectClose(const at::Tensor& ours, const at::Tensor& golden);

// Gradients within kGradientTolerance of the largest of their tensor, or of `floor` where that is
// larger: softmax is blind to some parameters, whose gradients are rounding alone.
void ExpectGradients(const ParameterSet& set, const NamedTensors& golden, double floor);

}  // namespace oxbow::model
