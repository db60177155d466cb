// SPDX-License-Identifier: Apache-2.0
// Small transformers of diffusers as exported graphs, with what diffusers and peft compute with
// them (tools/make_exported_goldens.py), for the tests of this directory.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "core/model/architecture.h"
#include "core/model/lora.h"
#include "core/model/parameters.h"
#include "core/model/velocity_model.h"
#include "io/graph_files.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow::model {

inline std::filesystem::path ExportedGoldens() {
  const char* directory = std::getenv("OXBOW_EXPORTED_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/exported";
}

inline std::vector<std::string> ExportedNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ExportedGoldens())) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The parts of one case: inputs by name, expected results.
struct ExportedCase {
  at::Tensor x, sigma, direction, v;
  Conditioning conditioning;
  NamedTensors gradients;
  at::Tensor adapted;  // With the adapter; of the first case.
  NamedTensors adapter_gradients;
  at::Tensor gradient_norms;
};

class ExportedGolden : public ::testing::TestWithParam<std::string> {
 protected:
  ExportedGolden() {
    at::set_num_threads(1);
    const std::filesystem::path directory = ExportedGoldens() / GetParam();
    source_.config_json = *ReadFile(directory / "config.json");
    source_.graph_json = *io::ReadGraphFile(directory / "graph.json.gz");
    const auto graph = nlohmann::json::parse(source_.graph_json);
    source_.class_name = graph["class"];
    blocks_ = graph["blocks"].size();
    for (const auto& parameter : graph["parameters"]) parameters_.push_back(parameter["name"]);
    const std::string bytes = *ReadFile(directory / "golden.safetensors");
    const auto parsed = io::ParseSafetensors(bytes, "golden");
    spec_ = {.rank = std::stol(parsed->metadata.at("rank")),
             .alpha = std::stod(parsed->metadata.at("alpha")),
             .targets = nlohmann::json::parse(parsed->metadata.at("targets"))};
    scale_ = spec_.alpha / static_cast<double>(spec_.rank);
    const NamedTensors tensors = *io::AllToTorch(parsed->tensors);
    for (const auto& [name, tensor] : tensors) {
      const size_t dot = name.find('.');
      const std::string rest = name.substr(dot + 1);
      if (name.starts_with("weight.")) {
        weights_[rest] = tensor.to(at::kFloat);
      } else if (name.starts_with("adapter.")) {
        adapter_[rest] = tensor.to(at::kFloat);
      } else {
        Sort(cases_[static_cast<size_t>(std::stoi(name))], rest, tensor);
      }
    }
    auto architecture = ReadArchitecture(source_);
    EXPECT_TRUE(architecture.ok()) << architecture.status();
    architecture_ = *std::move(architecture);
  }

  static void Sort(ExportedCase& golden, const std::string& name, const at::Tensor& tensor) {
    if (name == "in.x")
      golden.x = tensor;
    else if (name == "in.sigma")
      golden.sigma = tensor;
    else if (name == "in.direction")
      golden.direction = tensor;
    else if (name == "out.v")
      golden.v = tensor;
    else if (name == "grad_norms")
      golden.gradient_norms = tensor;
    else if (name == "adapted.v")
      golden.adapted = tensor;
    else if (name.starts_with("adapted.grad."))
      golden.adapter_gradients[name.substr(13)] = tensor;
    else if (name.starts_with("grad."))
      golden.gradients[name.substr(5)] = tensor;
    else if (name.starts_with("in."))
      golden.conditioning[name.substr(3)] = tensor;
  }

  std::unique_ptr<VelocityModel> Network(const NamedTensors& weights, bool recompute = false,
                                         const LoraAdapter* adapter = nullptr) const {
    auto network = architecture_->Make(weights, adapter, {.checkpoint_activations = recompute});
    EXPECT_TRUE(network.ok()) << network.status();
    return *std::move(network);
  }

  static at::Tensor Velocity(const VelocityModel& network, const ExportedCase& golden) {
    return network.Velocity(golden.x, golden.sigma, golden.conditioning);
  }

  // All weights but buffers, as leaves.
  std::pair<std::unique_ptr<ParameterSet>, NamedTensors> Trainable() const {
    NamedTensors trained = weights_, all = weights_;
    for (const std::string& name : architecture_->buffers()) trained.erase(name);
    auto set = std::make_unique<ParameterSet>(trained, /*trainable=*/true);
    for (const auto& [name, view] : set->tensors()) all[name] = view;
    return {std::move(set), std::move(all)};
  }

  static double Largest(const at::Tensor& tensor) { return tensor.abs().max().item<double>(); }

  ArchitectureSource source_;
  size_t blocks_ = 0;
  std::vector<std::string> parameters_;
  NamedTensors weights_, adapter_;
  LoraSpec spec_;     // The adapter's.
  double scale_ = 0;  // Factor of its products.
  std::map<size_t, ExportedCase> cases_;
  std::shared_ptr<const Architecture> architecture_;
};

}  // namespace oxbow::model
