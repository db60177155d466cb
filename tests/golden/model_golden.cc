// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/model_golden.h"

#include <algorithm>
#include <cstdlib>

#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "tests/testing/graph_architecture.h"

namespace oxbow::model {
namespace {

namespace fs = std::filesystem;

fs::path Directory() {
  const char* directory = std::getenv("OXBOW_MODEL_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/models";
}

}  // namespace

fs::path GoldenPath(const std::string& file) { return Directory() / file; }

std::vector<std::string> GoldenNames(const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(Directory())) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".safetensors" && name.starts_with(kind + "_")) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::shared_ptr<const Architecture> Golden::Network() const {
  return testing::GraphArchitecture(GoldenPath(name + ".json.gz"));
}

Golden::Golden(const std::string& name) : name(name) {
  const auto file = io::ReadSafetensors(GoldenPath(name + ".safetensors"));
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return;
  metadata = file->metadata;
  config = metadata.at("config");
  for (const auto& [key, bytes] : file->tensors) {
    const at::Tensor tensor = *io::ToTorch(bytes);
    if (key.starts_with("weight.")) weights[key.substr(7)] = tensor.to(at::kFloat);
    if (key.starts_with("adapter.")) adapter[key.substr(8)] = tensor.to(at::kFloat);
    if (key.starts_with("in.")) in[key.substr(3)] = tensor;
    if (key.starts_with("out.")) out[key.substr(4)] = tensor;
    if (key.starts_with("grad.")) gradients[key.substr(5)] = tensor;
  }
}

void ExpectClose(const at::Tensor& ours, const at::Tensor& golden) {
  ASSERT_EQ(ours.sizes(), golden.sizes());
  const double error = (ours - golden).abs().max().item<double>();
  EXPECT_LE(error, kOutputTolerance * std::max(1.0, golden.abs().max().item<double>()));
  ::testing::Test::RecordProperty("largest_error", std::to_string(error));
}

void ExpectGradients(const ParameterSet& set, const NamedTensors& golden, double floor) {
  for (const auto& [name, expected] : golden) {
    const double scale = std::max(floor, expected.abs().max().item<double>());
    const double error = (set.Get(name).grad() - expected).abs().max().item<double>();
    EXPECT_LE(error, kGradientTolerance * scale) << name << " of scale " << scale;
  }
}

}  // namespace oxbow::model
