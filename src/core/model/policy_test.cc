// SPDX-License-Identifier: Apache-2.0
#include "core/model/policy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/initial_weights.h"
#include "tests/testing/small_sd3.h"

namespace oxbow::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kToQ = "transformer_blocks.1.attn.to_q";

Policy::Options FullOptions() {
  RandomStream random({.seed = 3});
  Policy::Options options{.architecture = SmallSd3(/*blocks=*/2, /*dual=*/0),
                          .base = InitialWeights(*SmallSd3(/*blocks=*/2, /*dual=*/0), random)};
  for (auto& [name, tensor] : options.base) {
    if (name == kPositionTable) continue;
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      tensor.mutable_data_ptr<float>()[i] += static_cast<float>(0.1 * random.NextNormal());
    }
  }
  return options;
}

Policy::Options LoraOptions() {
  Policy::Options options = FullOptions();
  options.trained = Trained::kLora;
  options.lora = {
      .rank = 3, .alpha = 6, .targets = {"attn.to_q", "attn.to_k", "attn.to_v", "ff.net.2"}};
  options.lora_seed = 5;
  return options;
}

at::Tensor Velocity(const VelocityModel& model) {
  RandomStream random({.seed = 9});
  const auto draw = [&](at::IntArrayRef shape) {
    at::Tensor tensor = at::empty(shape, at::kFloat);
    random.FillNormal(std::span<float>(tensor.mutable_data_ptr<float>(), tensor.numel()));
    return tensor;
  };
  return model.Velocity(draw({3, 2, 8, 6}), at::sigmoid(draw({3})),
                        {{kPromptTokens, draw({3, 5, 12})}, {kPooledPrompt, draw({3, 10})}});
}

std::string RefusalOf(Policy::Options options) {
  const auto policy = Policy::Create(std::move(options));
  EXPECT_EQ(policy.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(policy.status().message());
}

TEST(PolicyTest, AFreshPolicyEqualsItsReferenceAndAverageExactly) {
  for (Policy::Options options : {FullOptions(), LoraOptions()}) {
    const auto policy = *Policy::Create(std::move(options));
    EXPECT_TRUE(at::equal(Velocity(policy->current()), Velocity(policy->reference())));
    EXPECT_TRUE(at::equal(Velocity(policy->current()), Velocity(policy->ema())));
  }
}

// On any device; here both are on the CPU.
// Promise: Where moments are changes no bit.
TEST(PolicyTest, AnAverageInHostMemoryTakesThePlaceOfTheWeightsWhileItIsInUse) {
  for (Policy::Options options : {FullOptions(), LoraOptions()}) {
    options.average_on_host = true;
    const auto policy = *Policy::Create(std::move(options));
    {
      const at::NoGradGuard no_grad;
      policy->parameters().flat().add_(0.01);
      policy->ema_parameters().flat().add_(0.02);
    }
    const at::Tensor average = policy->ema_parameters().flat().clone();
    const at::Tensor weights = policy->parameters().flat().detach().clone();
    const at::Tensor of_weights = Velocity(policy->current());
    {
      const AverageInUse in_use(*policy);
      EXPECT_TRUE(at::equal(policy->parameters().flat().detach(), average));
      EXPECT_FALSE(at::equal(Velocity(in_use.network()), of_weights));
    }
    EXPECT_TRUE(at::equal(policy->parameters().flat().detach(), weights));
    EXPECT_TRUE(at::equal(policy->ema_parameters().flat(), average));
    EXPECT_TRUE(at::equal(Velocity(policy->current()), of_weights));
  }
}

TEST(PolicyTest, AMergedAdapterIsTheAdapterAfterEveryLoadAndTouchesNoBase) {
  Policy::Options options = LoraOptions();
  options.trainable = options.with_ema = options.with_reference = false;
  const auto apart = *Policy::Create(options);
  options.merged = true;
  const auto merged = *Policy::Create(options);
  EXPECT_TRUE(at::equal(Velocity(apart->current()), Velocity(merged->current())));
  for (const uint64_t seed : {1, 2}) {
    at::manual_seed(static_cast<int64_t>(seed));
    NamedTensors trained;
    for (const auto& [name, tensor] : apart->parameters().tensors()) {
      trained[name] = at::randn(tensor.sizes()) * 0.3;
    }
    ASSERT_TRUE(apart->Load(trained).ok());
    ASSERT_TRUE(merged->Load(trained).ok());
    const at::Tensor want = Velocity(apart->current()), got = Velocity(merged->current());
    EXPECT_TRUE(at::allclose(got, want, 1e-4, 1e-5)) << (got - want).abs().max();
    EXPECT_FALSE(at::allclose(got, Velocity(merged->reference()), 1e-2, 1e-2));
  }
  for (const auto& [name, tensor] : options.base) {
    EXPECT_TRUE(at::equal(merged->frozen().at(name), tensor)) << name;
  }
}

TEST(PolicyTest, TrainingMovesCurrentAloneAndNeverTheBuffer) {
  for (Policy::Options options : {FullOptions(), LoraOptions()}) {
    const auto policy = *Policy::Create(std::move(options));
    const at::Tensor before = Velocity(policy->reference()).detach();
    EXPECT_FALSE(policy->parameters().Has(kPositionTable));
    EXPECT_TRUE(policy->frozen().contains(kPositionTable));
    Velocity(policy->current()).square().sum().backward();
    EXPECT_GT(policy->parameters().flat_grad().abs().max().item<float>(), 0);
    const at::NoGradGuard no_grad;
    policy->parameters().flat().sub_(policy->parameters().flat_grad(), 1e-2);
    EXPECT_FALSE(at::equal(Velocity(policy->current()), before));
    EXPECT_TRUE(at::equal(Velocity(policy->reference()), before));
    EXPECT_TRUE(at::equal(Velocity(policy->ema()), before));
    policy->ema_parameters().CopyFrom(policy->parameters());
    EXPECT_TRUE(at::equal(Velocity(policy->ema()), Velocity(policy->current())));
  }
}

TEST(PolicyTest, AnAdaptersLengthIsThatOfTheWeightsItAdds) {
  const auto policy = *Policy::Create(LoraOptions());
  EXPECT_EQ(policy->base_copy(), nullptr);
  EXPECT_EQ(policy->adapter_norm(), 0) << "B starts at zero";
  const at::NoGradGuard no_grad;
  policy->parameters().flat().normal_();
  double square = 0;
  for (const auto& [name, a] : policy->parameters().tensors()) {
    if (!name.ends_with(".lora_A.weight")) continue;
    const std::string module = name.substr(0, name.size() - std::string(".lora_A.weight").size());
    const at::Tensor& b = policy->parameters().Get(module + ".lora_B.weight");
    const at::Tensor& w = policy->frozen().at(module + ".weight");
    const LoraSpec spec = LoraOptions().lora;
    const at::Tensor moved =
        MergedWeight(w.to(at::kDouble), a, b, spec.alpha / static_cast<double>(spec.rank)) - w;
    square += moved.square().sum().item<double>();
  }
  ASSERT_GT(square, 0);
  EXPECT_NEAR(*policy->adapter_norm(), std::sqrt(square), 1e-4 * std::sqrt(square));
}

TEST(PolicyTest, TheBaseIsKnownToAFullFineTuneThatHasACopyOfIt) {
  EXPECT_TRUE(at::equal((*Policy::Create(FullOptions()))->base_copy()->flat(),
                        (*Policy::Create(FullOptions()))->parameters().flat()));
  EXPECT_EQ((*Policy::Create(FullOptions()))->adapter_norm(), std::nullopt);
  Policy::Options moving = FullOptions(), without = FullOptions();
  moving.moving_reference = true;
  without.with_reference = false;
  EXPECT_EQ((*Policy::Create(moving))->base_copy(), nullptr);
  EXPECT_EQ((*Policy::Create(without))->base_copy(), nullptr);
}

TEST(PolicyTest, CopiesThatFollowAreOfTheTrainablePartAlone) {
  for (Policy::Options options : {FullOptions(), LoraOptions()}) {
    options.old = OldPolicy::kSamples;
    options.moving_reference = true;
    const auto policy = *Policy::Create(std::move(options));
    const at::Tensor before = Velocity(policy->current()).detach();
    EXPECT_TRUE(at::equal(Velocity(policy->old()), before));
    EXPECT_TRUE(at::equal(Velocity(policy->reference()), before));
    EXPECT_EQ(policy->old_parameters().numel(), policy->parameters().numel());
    EXPECT_EQ(policy->reference_parameters().numel(), policy->parameters().numel());
    const at::NoGradGuard no_grad;
    policy->parameters().flat().add_(0.05);
    EXPECT_TRUE(at::equal(Velocity(policy->sampler()), before)) << "workers draw with the old one";
    policy->old_parameters().CopyFrom(policy->parameters());
    policy->reference_parameters().CopyFrom(policy->parameters());
    EXPECT_TRUE(at::equal(Velocity(policy->sampler()), Velocity(policy->current())));
    EXPECT_TRUE(at::equal(Velocity(policy->reference()), Velocity(policy->current())));
  }
}

// Promise: Noise levels equal those of diffusers.
TEST(PolicyTest, WholeTimestepsAreOfEveryNetwork) {
  const auto at_level = [](const VelocityModel& model, double sigma) {
    return model.Velocity(
        at::ones({2, 2, 8, 6}), at::full({2}, sigma, at::kFloat),
        {{kPromptTokens, at::ones({2, 5, 12})}, {kPooledPrompt, at::ones({2, 10})}});
  };
  for (Policy::Options options : {FullOptions(), LoraOptions()}) {
    options.old = OldPolicy::kKept;
    options.guidance = 3;
    options.negative = {{kPromptTokens, at::zeros({1, 5, 12})},
                        {kPooledPrompt, at::zeros({1, 10})}};
    const auto exact = *Policy::Create(options);
    options.whole_timesteps = true;
    const auto whole = *Policy::Create(std::move(options));
    for (const VelocityModel* network :
         {&whole->current(), &whole->reference(), &whole->ema(), &whole->old()}) {
      EXPECT_TRUE(at::equal(at_level(*network, .98277), at_level(exact->current(), .982)));
    }
    EXPECT_FALSE(at::equal(at_level(exact->current(), .98277), at_level(exact->current(), .982)));
  }
}

TEST(PolicyTest, WithoutAnOldPolicyTheCurrentOneSamples) {
  const auto policy = *Policy::Create(LoraOptions());
  EXPECT_FALSE(policy->has_old());
  EXPECT_EQ(&policy->sampler(), &policy->current());
  EXPECT_EQ(&policy->sampler_parameters(), &policy->parameters());
}

// The adapter's network against one whose weights have scale * B A added, outputs and gradients.
TEST(PolicyTest, AnAdapterIsTheMergedWeight) {
  const auto policy = *Policy::Create(LoraOptions());
  ParameterSet& adapter = policy->parameters();
  RandomStream random({.seed = 21});
  std::vector<float> noise(static_cast<size_t>(adapter.numel()));
  random.FillNormal(std::span<float>(noise));
  adapter.flat().add_(at::from_blob(noise.data(), {adapter.numel()}), 0.1);

  ParameterSet merged(policy->frozen(), /*trainable=*/true);
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, a] : adapter.tensors()) {
      const size_t suffix = name.find(".lora_A.weight");
      if (suffix == std::string::npos) continue;
      const std::string module = name.substr(0, suffix);
      at::Tensor(merged.Get(module + ".weight"))
          .add_(at::mm(adapter.Get(module + ".lora_B.weight"), a), 2.0);
    }
  }
  const auto network = *SmallSd3(/*blocks=*/2, /*dual=*/0)->Make(merged.tensors(), nullptr, {});
  const at::Tensor ours = Velocity(policy->current()), oracle = Velocity(*network);
  EXPECT_TRUE(at::allclose(ours, oracle, 1e-4, 1e-4)) << (ours - oracle).abs().max();
  ours.square().sum().backward();
  oracle.square().sum().backward();
  const std::string a = std::string(kToQ) + ".lora_A.weight",
                    b = std::string(kToQ) + ".lora_B.weight";
  const at::Tensor dw = merged.Get(std::string(kToQ) + ".weight").grad() * 2.0;
  const at::NoGradGuard no_grad;
  const auto near = [](const at::Tensor& x, const at::Tensor& y) {
    return (x - y).abs().max().item<double>() <= 1e-4 * y.abs().max().item<double>();
  };
  EXPECT_TRUE(near(adapter.Get(a).grad(), at::mm(adapter.Get(b).t(), dw)));
  EXPECT_TRUE(near(adapter.Get(b).grad(), at::mm(dw, adapter.Get(a).t())));
}

TEST(PolicyTest, LoraTargetsMatchAsPeftDoes) {
  const LinearModules modules = SmallSd3(/*blocks=*/2, /*dual=*/0)->linears();
  const auto q = *MatchLoraTargets(modules, {"attn.to_q"});
  EXPECT_THAT(q, ::testing::ElementsAre("transformer_blocks.0.attn.to_q", kToQ));  // Not attn2.
  EXPECT_THAT(*MatchLoraTargets(modules, {"proj_out"}), ::testing::ElementsAre("proj_out"));
  const auto medium = testing::GraphArchitecture(testing::kSd35MediumGraph);
  const auto published =
      *MatchLoraTargets(medium->linears(),
                        {"attn.add_k_proj", "attn.add_q_proj", "attn.add_v_proj", "attn.to_add_out",
                         "attn.to_k", "attn.to_out.0", "attn.to_q", "attn.to_v"});
  EXPECT_EQ(published.size(), 191u);
  int64_t elements = 0;
  for (const auto& [name, shape] : medium->shapes()) {
    int64_t numel = 1;
    for (const int64_t n : shape) numel *= n;
    elements += numel;
  }
  EXPECT_EQ(medium->shapes().size(), 909u);  // SD3.5-medium as published.
  EXPECT_EQ(elements, 2'469'663'936);
}

TEST(PolicyTest, InitialAdaptersHavePeftsSpread) {
  const auto lora = *InitialLora({{"m", {4000, 7}}}, {.rank = 5, .alpha = 1, .targets = {"m"}}, 1);
  EXPECT_NEAR(lora.at("m.lora_A.weight").std().item<double>(), 1.0 / 5, 0.005);
  EXPECT_EQ(lora.at("m.lora_B.weight").abs().max().item<float>(), 0);
}

TEST(PolicyTest, BadInputIsRefusedByName) {
  Policy::Options options = FullOptions();
  options.base.erase("proj_out.bias");
  options.base["stray"] = at::zeros({1});
  options.base["norm_out.linear.bias"] = at::zeros({3});
  EXPECT_THAT(RefusalOf(options),
              AllOf(HasSubstr("missing: proj_out.bias"), HasSubstr("unexpected: stray"),
                    HasSubstr("norm_out.linear.bias [3] instead of [32]")));
  options = LoraOptions();
  options.lora.targets.push_back("attn.to_nothing");
  EXPECT_THAT(RefusalOf(options), HasSubstr("attn.to_nothing"));
  options = LoraOptions();
  options.lora.rank = 0;
  EXPECT_THAT(RefusalOf(options), HasSubstr("rank"));
}

TEST(PolicyTest, LoadReplacesTheTrainedPartOrNamesWhatDoesNotFit) {
  const auto source = *Policy::Create(LoraOptions());
  Policy::Options other = LoraOptions();
  other.lora_seed = 6;
  other.trainable = false;
  const auto worker = *Policy::Create(std::move(other));
  NamedTensors weights = source->parameters().tensors();
  ASSERT_TRUE(worker->Load(weights).ok());
  EXPECT_TRUE(at::equal(worker->parameters().flat(), source->parameters().flat()));
  weights.erase(weights.begin());
  EXPECT_EQ(worker->Load(weights).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace oxbow::model
