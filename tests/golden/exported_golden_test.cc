// SPDX-License-Identifier: Apache-2.0
// Small transformers of diffusers, run by their exported graphs: velocities and gradients are those
// of diffusers, a row has the same bits whatever the batch, and recomputed blocks change nothing.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "core/model/architecture.h"
#include "core/model/exported_graph/exported_architecture.h"
#include "core/model/lora.h"
#include "core/model/parameters.h"
#include "core/model/policy.h"
#include "core/model/sd3.h"
#include "core/model/velocity_model.h"
#include "io/graph_files.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow::model {
namespace {

namespace fs = std::filesystem;

constexpr double kVelocityTolerance = 1e-5;  // Relative to the largest velocity.
constexpr double kGradientTolerance = 1e-4;  // Relative to the tensor's largest.
constexpr double kNormTolerance = 1e-4;

fs::path Goldens() {
  const char* directory = std::getenv("OXBOW_EXPORTED_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/exported";
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(Goldens())) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The parts of one case: inputs by name, expected results.
struct Case {
  at::Tensor x, sigma, direction, v;
  Conditioning conditioning;
  NamedTensors gradients;
  at::Tensor adapted;  // With the adapter; of the first case.
  NamedTensors adapter_gradients;
  at::Tensor gradient_norms;
};

class ExportedGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  ExportedGoldenTest() {
    at::set_num_threads(1);
    const fs::path directory = Goldens() / GetParam();
    source_.config_json = *ReadFile(directory / "config.json");
    source_.graph_json = *io::ReadGraphFile(directory / "graph.json.gz");
    const auto graph = nlohmann::json::parse(source_.graph_json);
    source_.class_name = graph["class"];
    blocks_ = graph["blocks"].size();
    for (const auto& parameter : graph["parameters"]) parameters_.push_back(parameter["name"]);
    const std::string bytes = *ReadFile(directory / "golden.safetensors");
    const auto parsed = io::ParseSafetensors(bytes, "golden");
    scale_ = std::stod(parsed->metadata.at("alpha")) / std::stod(parsed->metadata.at("rank"));
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
    auto architecture = exported::ReadExportedArchitecture(source_);
    EXPECT_TRUE(architecture.ok()) << architecture.status();
    architecture_ = *std::move(architecture);
  }

  static void Sort(Case& golden, const std::string& name, const at::Tensor& tensor) {
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

  static at::Tensor Velocity(const VelocityModel& network, const Case& golden) {
    return network.Velocity(golden.x, golden.sigma, golden.conditioning);
  }

  // All weights but buffers, as leaves.
  std::pair<ParameterSet, NamedTensors> Trainable() const {
    NamedTensors trained = weights_, all = weights_;
    for (const std::string& name : architecture_->buffers()) trained.erase(name);
    ParameterSet set(trained, /*trainable=*/true);
    for (const auto& [name, view] : set.tensors()) all[name] = view;
    return {std::move(set), std::move(all)};
  }

  static double Largest(const at::Tensor& tensor) { return tensor.abs().max().item<double>(); }

  ArchitectureSource source_;
  size_t blocks_ = 0;
  std::vector<std::string> parameters_;
  NamedTensors weights_, adapter_;
  double scale_ = 0;  // Factor of the adapter's products.
  std::map<size_t, Case> cases_;
  std::shared_ptr<const Architecture> architecture_;
};

TEST_P(ExportedGoldenTest, VelocitiesAreThoseOfDiffusers) {
  const at::NoGradGuard no_grad;
  ASSERT_GE(cases_.size(), 3u);
  for (const auto& [number, golden] : cases_) {
    const at::Tensor v = Velocity(*Network(weights_), golden);
    ASSERT_EQ(v.sizes(), golden.v.sizes());
    EXPECT_LE(Largest(v - golden.v), kVelocityTolerance * Largest(golden.v)) << "case " << number;
  }
}

TEST_P(ExportedGoldenTest, GradientsAreThoseOfDiffusers) {
  for (const auto& [number, golden] : cases_) {
    auto [set, all] = Trainable();
    (Velocity(*Network(all), golden) * golden.direction).sum().backward();
    const double norm_max = golden.gradient_norms.max().item<double>();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!set.Has(parameters_[i])) continue;
      const double norm = set.Get(parameters_[i]).grad().norm().item<double>();
      const double expected = golden.gradient_norms[static_cast<int64_t>(i)].item<double>();
      EXPECT_NEAR(norm, expected, kNormTolerance * expected + 1e-6 * norm_max) << parameters_[i];
    }
    for (const auto& [name, expected] : golden.gradients) {
      EXPECT_LE(Largest(set.Get(name).grad() - expected),
                kGradientTolerance * Largest(expected) + 1e-6 * norm_max)
          << "case " << number << " " << name;
    }
  }
}

TEST_P(ExportedGoldenTest, TheNetworkOfItsOwnIsTheSame) {
  if (!IsNative(source_.class_name)) GTEST_SKIP() << "no C++ of its own";
  const auto native = *ReadArchitecture(source_);
  ASSERT_EQ(native->graph_json(), "") << "the table has the class itself";
  for (const auto& [number, golden] : cases_) {
    auto [set, all] = Trainable();
    auto [native_set, native_all] = Trainable();
    const at::Tensor v = Velocity(*Network(all), golden);
    const at::Tensor w = Velocity(**native->Make(native_all, nullptr, {}), golden);
    EXPECT_LE(Largest(v - w), kVelocityTolerance * Largest(w)) << "case " << number;
    (v * golden.direction).sum().backward();
    (w * golden.direction).sum().backward();
    const double floor = 1e-6 * Largest(native_set.flat_grad());
    for (const auto& [name, tensor] : set.tensors()) {
      const at::Tensor expected = native_set.Get(name).grad();
      EXPECT_LE(Largest(tensor.grad() - expected), kGradientTolerance * Largest(expected) + floor)
          << "case " << number << " " << name;
    }
  }
}

TEST_P(ExportedGoldenTest, RecomputedBlocksGiveTheSameBitsAndGradients) {
  const Case& golden = cases_.at(0);
  auto [kept, all_kept] = Trainable();
  auto [again, all_again] = Trainable();
  const auto network = Network(all_kept), recomputed = Network(all_again, true);
  const at::Tensor v = Velocity(*network, golden), w = Velocity(*recomputed, golden);
  EXPECT_TRUE(at::equal(v, w));
  (v * golden.direction).sum().backward();
  (w * golden.direction).sum().backward();
  EXPECT_LE(Largest(kept.flat_grad() - again.flat_grad()), 1e-6 * Largest(kept.flat_grad()));
  EXPECT_GT(Largest(kept.flat_grad()), 0);
}

TEST_P(ExportedGoldenTest, ARowHasTheSameBitsWhateverTheBatch) {
  const at::NoGradGuard no_grad;
  const Case& golden = cases_.at(0);
  const auto network = Network(weights_);
  Case rows = golden;
  constexpr int64_t kRows = 19;
  at::manual_seed(4);
  std::vector<int64_t> shape = golden.x.sizes().vec();
  shape[0] = kRows;
  rows.x = at::randn(shape);
  rows.sigma = at::rand({kRows});
  const at::Tensor pick = at::arange(kRows).remainder(golden.x.size(0));
  rows.conditioning = SelectRows(golden.conditioning, pick);
  const at::Tensor all = Velocity(*network, rows);
  for (const int64_t count : {1, 2, 3, 7, 8, 9, 11, 16}) {
    for (const int64_t first : {int64_t{0}, kRows - count}) {
      const at::Tensor part =
          network->Velocity(rows.x.narrow(0, first, count), rows.sigma.narrow(0, first, count),
                            NarrowRows(rows.conditioning, first, count));
      EXPECT_TRUE(at::equal(part, all.narrow(0, first, count)))
          << count << " rows from " << first << ": " << Largest(part - all.narrow(0, first, count));
    }
  }
}

TEST_P(ExportedGoldenTest, AdaptersAreThoseOfPeft) {
  const Case& golden = cases_.at(0);
  for (const bool recompute : {false, true}) {
    ParameterSet matrices(adapter_, /*trainable=*/true);
    const LoraAdapter adapter{.tensors = matrices.tensors(), .scale = scale_};
    const auto network = Network(weights_, recompute, &adapter);
    const at::Tensor v = Velocity(*network, golden);
    EXPECT_LE(Largest(v - golden.adapted), kVelocityTolerance * Largest(golden.adapted));
    (v * golden.direction).sum().backward();
    double largest = 0;
    for (const auto& [name, gradient] : golden.adapter_gradients) {
      largest = std::max(largest, Largest(gradient));
    }
    for (const auto& [name, matrix] : matrices.tensors()) {
      const auto found = golden.adapter_gradients.find(name);
      const at::Tensor expected = found == golden.adapter_gradients.end()
                                      ? at::zeros_like(matrix)
                                      : found->second.to(at::kFloat);
      EXPECT_LE(Largest(matrix.grad() - expected),
                kGradientTolerance * Largest(expected) + 1e-6 * largest)
          << name;
    }
  }
}

// A fresh adapter changes no bit, and one that trained is what it is when merged into the weights.
TEST_P(ExportedGoldenTest, AdaptersAddTheirProducts) {
  const Case& golden = cases_.at(0);
  LoraSpec spec{.rank = 3, .alpha = 6};
  for (const auto& [module, widths] : architecture_->linears()) spec.targets.push_back(module);
  NamedTensors matrices = *InitialLora(architecture_->linears(), spec, 7);
  at::NoGradGuard no_grad;
  const at::Tensor base = Velocity(*Network(weights_), golden);
  const LoraAdapter fresh{.tensors = matrices, .scale = 2};
  EXPECT_TRUE(at::equal(Velocity(*Network(weights_, false, &fresh), golden), base));
  at::manual_seed(2);
  for (auto& [name, tensor] : matrices) tensor = tensor + at::randn_like(tensor) * 0.1;
  const LoraAdapter trained{.tensors = matrices, .scale = 2};
  NamedTensors merged = weights_;
  for (const auto& [module, widths] : architecture_->linears()) {
    merged[module + ".weight"] =
        MergedWeight(weights_.at(module + ".weight"), matrices.at(module + ".lora_A.weight"),
                     matrices.at(module + ".lora_B.weight"), trained.scale);
  }
  const at::Tensor v = Velocity(*Network(weights_, false, &trained), golden);
  EXPECT_LE(Largest(v - Velocity(*Network(merged), golden)), 2e-5 * Largest(v));
  EXPECT_GT(Largest(v - base), 0.01 * Largest(base));
}

TEST_P(ExportedGoldenTest, ShorterProductsStayNear) {
  const Case& golden = cases_.at(0);
  const auto network = architecture_->Make(weights_, nullptr, {.compute = at::kBFloat16});
  ASSERT_TRUE(network.ok());
  const at::NoGradGuard no_grad;
  const at::Tensor v = Velocity(**network, golden);
  EXPECT_LE((v - golden.v).norm().item<double>(), 0.05 * golden.v.norm().item<double>());
  EXPECT_FALSE(at::equal(v, golden.v));
}

// Against the checkpoint as diffusers loads it in bfloat16, where its class keeps some modules.
TEST_P(ExportedGoldenTest, WhatDiffusersKeepsInFloat32StaysSo) {
  const fs::path file = Goldens() / GetParam() / "bf16.safetensors";
  if (!fs::exists(file)) {
    EXPECT_EQ(architecture_->float32(), architecture_->buffers());
    return;
  }
  const auto short_products = *io::ReadSafetensors(file);
  const NamedTensors velocities = *io::AllToTorch(short_products.tensors);
  const auto kept = nlohmann::json::parse(short_products.metadata.at("float32"));
  EXPECT_EQ(architecture_->float32(), kept.get<std::set<std::string>>());
  const auto policy = Policy::Create({.architecture = architecture_,
                                      .base = weights_,
                                      .trained = Trained::kLora,
                                      .lora = {.rank = 1, .alpha = 1, .targets = {"to_q"}},
                                      .compute = at::kBFloat16});
  ASSERT_TRUE(policy.ok()) << policy.status();
  for (const auto& [name, tensor] : (*policy)->frozen()) {
    const bool stays = architecture_->float32().contains(name);
    EXPECT_EQ(tensor.scalar_type(), stays ? at::kFloat : at::kBFloat16) << name;
    EXPECT_TRUE(!stays || at::equal(tensor, weights_.at(name))) << name;
  }
  const at::NoGradGuard no_grad;
  for (const auto& [number, golden] : cases_) {
    const at::Tensor v = Velocity((*policy)->reference(), golden);
    const at::Tensor theirs = velocities.at(absl::StrCat(number, ".out.v"));
    EXPECT_LE(Largest(v - theirs), 0.012 * Largest(theirs)) << "case " << number;
    EXPECT_LE(Largest(v - golden.v), 0.008 * Largest(golden.v)) << "case " << number;
  }
}

TEST_P(ExportedGoldenTest, TheMemoryOfATrainingPassIsKnown) {
  const Case& golden = cases_.at(0);
  const auto tokens = golden.conditioning.at(kPromptTokens).size(1);
  const std::vector<int64_t> shape = golden.x.sizes().slice(1).vec();
  const ForwardSize few{.rows = 32, .latent_shape = shape, .prompt_tokens = tokens};
  const ForwardSize many{.rows = 128, .latent_shape = shape, .prompt_tokens = tokens};
  const uint64_t kept = architecture_->ActivationBytes({}, few);
  EXPECT_GT(kept, 100000u);
  EXPECT_GT(architecture_->ActivationBytes({}, many), 3 * kept);
  const uint64_t again = architecture_->ActivationBytes({.checkpoint_activations = true}, few);
  const bool saves = blocks_ > 2;  // One or two blocks save nothing.
  EXPECT_LT(again, saves ? kept : kept + kept / 4);
}

INSTANTIATE_TEST_SUITE_P(Exported, ExportedGoldenTest, ::testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace oxbow::model
