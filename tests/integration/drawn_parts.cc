// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/drawn_parts.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "base/file.h"
#include "base/philox.h"
#include "core/model/architecture.h"
#include "core/model/decoder_architecture.h"
#include "gtest/gtest.h"
#include "io/graph_files.h"
#include "io/safetensors.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kWeights[] = "diffusion_pytorch_model.safetensors";

void WriteWeights(const fs::path& part, const model::Shapes& shapes, const Filling& fill) {
  io::Safetensors weights;
  for (const auto& [name, shape] : shapes) {
    size_t elements = 1;
    for (const int64_t size : shape) elements *= static_cast<size_t>(size);
    std::vector<float> values(elements, 0.0f);
    fill(name, shape.empty() ? 1 : elements / static_cast<size_t>(shape[0]), values);
    weights.tensors[name] = {
        .dtype = io::DType::kF32,
        .shape = shape,
        .data = std::string(reinterpret_cast<const char*>(values.data()), 4 * elements)};
  }
  ASSERT_TRUE(io::WriteSafetensors(part / kWeights, weights).ok());
}

}  // namespace

namespace {

void WriteAutoencoder(const fs::path& model, const std::string& config,
                      const std::string& graph_json, const Filling& fill) {
  const auto decoder = model::ReadDecoder(config, graph_json);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  fs::create_directory(model / "vae");
  std::ofstream(model / "vae" / "config.json") << config;
  WriteWeights(model / "vae", (*decoder)->shapes(), fill);
  auto index = nlohmann::json::parse(ReadFile(model / "model_index.json").value());
  index["vae"] = {"diffusers", (*decoder)->class_name()};
  std::ofstream(model / "model_index.json") << index.dump();
}

// Scales and deviations are 1.
Filling Drawn() {
  return [seed = uint64_t{0}](const std::string& name, size_t, std::vector<float>& values) mutable {
    RandomStream random({.seed = ++seed});
    random.FillNormal(std::span(values));
    const bool one =
        name.ends_with("gamma") || name.ends_with("running_var") || name.ends_with("latents_std");
    for (float& value : values) value = one ? 1 : 0.2f * value;
  };
}

}  // namespace

void AddAutoencoder(const fs::path& model, const fs::path& part, const Filling& fill) {
  const auto graph = io::ReadGraphFile(part / "graph.json.gz");
  ASSERT_TRUE(graph.ok()) << graph.status();
  WriteAutoencoder(model, ReadFile(part / "config.json").value(), *graph, fill);
  fs::copy(part / "graph.json.gz", model / "vae");
}

void AddDrawnAutoencoder(const fs::path& model, const char* config) {
  WriteAutoencoder(model, config, "", Drawn());
}

void AddDrawnAutoencoder(const fs::path& model, const fs::path& part) {
  AddAutoencoder(model, part, Drawn());
}

void AddDrawnTransformer(const fs::path& model) {
  const fs::path part = model / "transformer";
  const std::string config = ReadFile(part / "config.json").value();
  const auto architecture =
      model::ReadArchitecture({.class_name = nlohmann::json::parse(config)["_class_name"],
                               .config_json = config,
                               .graph_json = *io::ReadGraphFile(part / "graph.json.gz")});
  ASSERT_TRUE(architecture.ok()) << architecture.status();
  uint64_t seed = 0;
  const auto draw = [&](const std::string&, size_t row, std::vector<float>& values) {
    RandomStream random({.seed = ++seed});
    random.FillNormal(std::span(values));
    // Factors of products by what they sum up; norms and biases small.
    const auto deviation = static_cast<float>(row > 1 ? 1 / std::sqrt(row) : 0.2);
    for (float& value : values) value *= deviation;
  };
  WriteWeights(part, (*architecture)->shapes(), draw);
}

}  // namespace oxbow::testing
