// SPDX-License-Identifier: Apache-2.0
// Small transformers of diffusers, run by their exported graphs: velocities and gradients are those
// of diffusers, a row has the same bits whatever the batch, and recomputed blocks change nothing.
#include "tests/golden/exported_golden.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include <iostream>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/model/int8_weights.h"
#include "core/model/policy.h"

namespace oxbow::model {
namespace {

namespace fs = std::filesystem;

constexpr double kVelocityTolerance = 3e-5;  // Relative to the largest velocity.
constexpr double kGradientTolerance = 2e-4;  // Relative to the tensor's largest.
constexpr double kNormTolerance = 1e-4;

// The worst errors of all cases, as the tolerances above take them: for a record.
struct Worst {
  double velocity = 0, gradient = 0, adapted = 0, adapter_gradient = 0;
};

// Promise: An exported graph is diffusers' network. Velocities of small transformers of 39
// configurations in eight classes equal diffusers' within 1e-5, gradients within 1e-4, adapters
// PEFT's. Recomputed blocks give the same bits. On a CPU a row has the same bits in batches of 1 to
// 19 rows and wherever it stands in them, also with the odd widths that the tests draw. Under bf16,
// what diffusers keeps in float32 stays so. An adapter's files mean to diffusers' pipelines and
// PEFT what they mean here.
class ExportedGoldenTest : public ExportedGolden {
 protected:
  static void TearDownTestSuite() {
    std::cout << ExportedNames().size() << " networks, worst relative errors: velocities "
              << worst_.velocity << ", gradients " << worst_.gradient << ", with an adapter "
              << worst_.adapted << ", its gradients " << worst_.adapter_gradient << "\n";
  }

  // Relative to the largest number and 1 % of `whole`: a tensor with hardly any gradient beside the
  // others has hardly any accuracy.
  static double RelativeError(const at::Tensor& ours, const at::Tensor& expected, double whole,
                              double& worst) {
    const double error = Largest(ours - expected) / (Largest(expected) + 0.01 * whole);
    worst = std::max(worst, error);
    return error;
  }

  static inline Worst worst_;
};

TEST_P(ExportedGoldenTest, VelocitiesAreThoseOfDiffusers) {
  const at::NoGradGuard no_grad;
  ASSERT_GE(cases_.size(), 3u);
  for (const auto& [number, golden] : cases_) {
    const at::Tensor v = Velocity(*Network(weights_), golden);
    ASSERT_EQ(v.sizes(), golden.v.sizes());
    EXPECT_LE(RelativeError(v, golden.v, 0, worst_.velocity), kVelocityTolerance)
        << "case " << number;
  }
}

TEST_P(ExportedGoldenTest, GradientsAreThoseOfDiffusers) {
  for (const auto& [number, golden] : cases_) {
    auto [set, all] = Trainable();
    set->ZeroGrad();  // A weight that the network does not use has a gradient of zeros.
    (Velocity(*Network(all), golden) * golden.direction).sum().backward();
    const double norm_max = golden.gradient_norms.max().item<double>();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!set->Has(parameters_[i])) continue;
      const double norm = set->Get(parameters_[i]).grad().norm().item<double>();
      const double expected = golden.gradient_norms[static_cast<int64_t>(i)].item<double>();
      EXPECT_NEAR(norm, expected, kNormTolerance * expected + 1e-6 * norm_max) << parameters_[i];
    }
    for (const auto& [name, expected] : golden.gradients) {
      const at::Tensor gradient = set->Get(name).grad();
      EXPECT_LE(RelativeError(gradient, expected, norm_max, worst_.gradient), kGradientTolerance)
          << "case " << number << " " << name;
    }
  }
}

TEST_P(ExportedGoldenTest, RecomputedBlocksGiveTheSameBitsAndGradients) {
  const ExportedCase& golden = cases_.at(0);
  auto [kept, all_kept] = Trainable();
  auto [again, all_again] = Trainable();
  const auto network = Network(all_kept), recomputed = Network(all_again, true);
  const at::Tensor v = Velocity(*network, golden), w = Velocity(*recomputed, golden);
  EXPECT_TRUE(at::equal(v, w));
  (v * golden.direction).sum().backward();
  (w * golden.direction).sum().backward();
  EXPECT_LE(Largest(kept->flat_grad() - again->flat_grad()), 1e-6 * Largest(kept->flat_grad()));
  EXPECT_GT(Largest(kept->flat_grad()), 0);
}

TEST_P(ExportedGoldenTest, ARowHasTheSameBitsWhateverTheBatch) {
  const at::NoGradGuard no_grad;
  const ExportedCase& golden = cases_.at(0);
  const auto network = Network(weights_);
  ExportedCase rows = golden;
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
  const ExportedCase& golden = cases_.at(0);
  for (const bool recompute : {false, true}) {
    ParameterSet matrices(adapter_, /*trainable=*/true);
    const LoraAdapter adapter{.tensors = matrices.tensors(), .scale = scale_};
    const auto network = Network(weights_, recompute, &adapter);
    const at::Tensor v = Velocity(*network, golden);
    EXPECT_LE(RelativeError(v, golden.adapted, 0, worst_.adapted), kVelocityTolerance);
    matrices.ZeroGrad();
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
      EXPECT_LE(RelativeError(matrix.grad(), expected, largest, worst_.adapter_gradient),
                kGradientTolerance)
          << name;
    }
  }
}

// A fresh adapter changes no bit, and one that trained is what it is when merged into the weights.
TEST_P(ExportedGoldenTest, AdaptersAddTheirProducts) {
  const ExportedCase& golden = cases_.at(0);
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
  const ExportedCase& golden = cases_.at(0);
  const auto network = architecture_->Make(weights_, nullptr, {.compute = at::kBFloat16});
  ASSERT_TRUE(network.ok());
  const at::NoGradGuard no_grad;
  const at::Tensor v = Velocity(**network, golden);
  EXPECT_LE((v - golden.v).norm().item<double>(), 0.05 * golden.v.norm().item<double>());
  EXPECT_FALSE(at::equal(v, golden.v));
}

// Against the checkpoint as diffusers loads it in bfloat16, where its class keeps some modules.
TEST_P(ExportedGoldenTest, WhatDiffusersKeepsInFloat32StaysSo) {
  const fs::path file = ExportedGoldens() / GetParam() / "bf16.safetensors";
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
    // How much the shorter products of diffusers move a velocity depends on the weights.
    const double moved = Largest(theirs - golden.v);
    EXPECT_LE(Largest(v - golden.v), 2 * moved) << "case " << number;
    EXPECT_LE(Largest(v - theirs), 3 * moved) << "case " << number;
    EXPECT_LE(moved, 0.02 * Largest(golden.v)) << "case " << number;
  }
}

// Bit for bit, and not far from the network without rounding.
// Promise: Workers sample with the learner's int8 weights.
TEST_P(ExportedGoldenTest, Int8WeightsComputeWhatTheirPlainOnesDo) {
  const auto make = [&](NamedTensors base, BaseWeights kept) {
    auto policy = Policy::Create({.architecture = architecture_,
                                  .base = std::move(base),
                                  .trained = Trained::kLora,
                                  .lora = {.rank = 1, .alpha = 1, .targets = {"to_q"}},
                                  .base_weights = kept});
    EXPECT_TRUE(policy.ok()) << policy.status();
    return *std::move(policy);
  };
  const std::set<std::string> names = Int8Names(*architecture_);
  if (names.empty()) GTEST_SKIP() << "all layers are too narrow";
  NamedTensors plain = weights_;
  for (const std::string& name : names) plain[name] = PlainWeight(ToInt8(plain[name], at::kFloat));
  const auto int8 = make(weights_, BaseWeights::kInt8);
  const auto same = make(plain, BaseWeights::kCompute);
  const at::NoGradGuard no_grad;
  for (const auto& [number, golden] : cases_) {
    const at::Tensor v = Velocity(int8->reference(), golden);
    EXPECT_TRUE(at::equal(v, Velocity(same->reference(), golden))) << "case " << number;
    EXPECT_LE((v - golden.v).norm().item<double>(), 0.05 * golden.v.norm().item<double>());
  }
}

TEST_P(ExportedGoldenTest, TheMemoryOfATrainingPassIsKnown) {
  const ExportedCase& golden = cases_.at(0);
  const auto tokens = golden.conditioning.at(kPromptTokens).size(1);
  const std::vector<int64_t> shape = golden.x.sizes().slice(1).vec();
  const ForwardSize few{.rows = 32, .latent_shape = shape, .prompt_tokens = tokens};
  const ForwardSize many{.rows = 128, .latent_shape = shape, .prompt_tokens = tokens};
  const uint64_t kept = architecture_->ActivationBytes({}, few);
  EXPECT_GT(kept, 100000u);
  EXPECT_GT(architecture_->ActivationBytes({}, many), 3 * kept);
  const uint64_t again = architecture_->ActivationBytes({.checkpoint_activations = true}, few);
  const uint64_t without_gradients = architecture_->SamplingBytes({}, few);
  EXPECT_LT(without_gradients, kept);
  EXPECT_GT(architecture_->SamplingBytes({}, many), 3 * without_gradients);
  const bool saves = blocks_ > 2;  // One or two blocks save nothing.
  EXPECT_LT(again, saves ? kept : kept + kept / 4);
}

INSTANTIATE_TEST_SUITE_P(Exported, ExportedGoldenTest, ::testing::ValuesIn(ExportedNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace oxbow::model
