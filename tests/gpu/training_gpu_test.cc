// SPDX-License-Identifier: Apache-2.0
// Training on a GPU compared with training on the CPU: gradients, a whole learner step, and the
// adapter that leaves the device.
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "core/flow/sampler.h"
#include "core/model/layers.h"
#include "core/model/side_by_side.h"
#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "io/lora_file.h"
#include "io/tensor_torch.h"
#include "tests/gpu/gpu_test.h"

namespace oxbow::model {
namespace {

constexpr int kSteps = 4;
constexpr int kSamples = 6;

class TrainingGpuTest : public GpuTest {
 protected:
  static at::Tensor GradientOf(const PolicyKind& kind) {
    const auto policy = GpuSizedPolicy(kind);
    Batch(5).Of(policy->current()).square().mean().backward();
    return policy->parameters().flat_grad().cpu();
  }
};

TEST_F(TrainingGpuTest, GradientsAreThoseOfTheCpu) {
  for (const Trained trained : {Trained::kFull, Trained::kLora}) {
    ExpectNear("gradient", GradientOf({.device = gpu_, .trained = trained}),
               GradientOf({.trained = trained}), kExactTolerance);
  }
}

TEST_F(TrainingGpuTest, ShortProductsAreCloseToExactOnes) {
  const at::Tensor exact = GradientOf({.device = gpu_});
  const at::Tensor rough = GradientOf({.device = gpu_, .compute = at::kBFloat16});
  EXPECT_EQ(rough.scalar_type(), at::kFloat);
  EXPECT_GT(RelativeDistance(rough, exact), 1e-5) << "bf16 was not used";
  EXPECT_GT(at::cosine_similarity(rough, exact, 0).item<double>(), 0.99);
}

// Weights that one product reads are held once.
TEST_F(TrainingGpuTest, FrozenWeightsOfOneInputHaveOneMemory) {
  const auto policy = GpuSizedPolicy({.device = gpu_, .compute = at::kBFloat16});
  const auto cpu = GpuSizedPolicy({.compute = at::kBFloat16});
  const auto groups = GpuSizedSd3()->side_by_side();
  EXPECT_FALSE(groups.empty());
  for (const std::vector<std::string>& group : groups) {
    std::vector<at::Tensor> tensors;
    size_t bytes = 0;
    for (const std::string& name : group) {
      tensors.push_back(policy->frozen().at(name));
      bytes += tensors.back().nbytes();
      EXPECT_TRUE(at::equal(tensors.back().cpu(), cpu->frozen().at(name))) << name;
    }
    EXPECT_TRUE(LieSideBySide(tensors)) << group[0];
    EXPECT_EQ(tensors[0].storage().nbytes(), bytes) << group[0];
  }
}

// An adapter's product is added where the base's is; the CPU's way is the oracle. In 16 bits the
// gradient of x is rounded once, and the oracle's in each of two parts.
TEST_F(TrainingGpuTest, AnAdapterIsAddedInPlaceWithTheBitsOfACopy) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(at::toString(compute));
    at::manual_seed(13);
    const auto leaf = [&](at::IntArrayRef shape) {
      return at::randn(shape).to(gpu_).set_requires_grad(true);
    };
    const Linear linear{.weight = at::randn({64, 48}).to(gpu_, compute),
                        .bias = at::randn({64}).to(gpu_, compute),
                        .lora_a = leaf({8, 48}),
                        .lora_b = leaf({64, 8}),
                        .lora_scale = 0.5};
    const at::Tensor x = leaf({40, 48});
    const at::Tensor direction = at::randn({40, 64}).to(gpu_);
    std::vector<at::Tensor> results;
    for (const bool copies : {false, true}) {
      const AutocastScope scope(at::kCUDA, compute);
      at::Tensor y = copies ? at::addmm(Linear{linear.weight, {}, linear.bias}(x),
                                        at::mm(x, linear.lora_a.t()), linear.lora_b.t(), 1, 0.5)
                            : linear(x);
      EXPECT_EQ(y.scalar_type(), compute);
      results.push_back(y.detach());
      (y.to(at::kFloat) * direction).sum().backward();
      for (const at::Tensor& of : {x, linear.lora_a, linear.lora_b}) {
        results.push_back(of.grad().clone());
        of.mutable_grad() = at::Tensor();
      }
    }
    for (size_t i = 0; i < 4; ++i) {
      if (i == 1 && compute != at::kFloat) {
        ExpectNear("x", results[i], results[i + 4], kShortTolerance);
      } else {
        EXPECT_TRUE(at::equal(results[i], results[i + 4])) << i;
      }
    }
  }
}

// In 16 bits a pass without gradients rounds GELU behind a product once (exported_graph/fusions.h).
TEST_F(TrainingGpuTest, RecomputedBlocksGiveTheSameVelocitiesAndGradients) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    const PolicyKind kept{.device = gpu_, .compute = compute};
    PolicyKind again = kept;
    again.recompute = true;
    const at::Tensor v = Batch(5).Of(GpuSizedPolicy(kept)->current());
    const at::Tensor with_recomputation = Batch(5).Of(GpuSizedPolicy(again)->current());
    EXPECT_TRUE(compute != at::kFloat || at::equal(with_recomputation, v));
    ExpectNear("velocities", with_recomputation, v, kShortTolerance);
    ExpectNear(at::toString(compute), GradientOf(again), GradientOf(kept),
               compute == at::kFloat ? kExactTolerance : kShortTolerance);
  }
}

flow::SamplingSpec Spec() {
  flow::SamplingSpec spec{
      .sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, kSteps, 3),
      .sde = std::vector<bool>(kSteps, true)};
  spec.sde.back() = false;
  return spec;
}

// Two groups sampled with the current policy.
std::vector<rl::Group> GroupsOf(const VelocityModel& model) {
  const at::NoGradGuard no_grad;
  std::vector<rl::Group> groups;
  for (uint64_t g = 0; g < 2; ++g) {
    at::manual_seed(50 + g);
    rl::Group& group = groups.emplace_back();
    group.id = GroupId(g);
    group.prompt_id = PromptId(g);
    group.conditioning = RandomPrompts(1);
    std::vector<flow::NoiseKey> keys;
    for (uint32_t s = 0; s < kSamples; ++s) keys.push_back({7, g, s});
    const flow::Paths paths = flow::SamplePaths(
        Spec(), keys, {4, 16, 16}, at::kFloat, [&](const at::Tensor& x, const at::Tensor& sigma) {
          return model.Velocity(x, sigma, group.conditioning);
        });
    for (int64_t s = 0; s < kSamples; ++s) {
      rl::Trajectory sample{.index = static_cast<uint32_t>(s),
                            .latents = paths.latents.select(1, s).clone(),
                            .sde = Spec().sde,
                            .behaviour_version = std::vector<uint64_t>(kSteps, 0)};
      for (int64_t i = 0; i < kSteps; ++i) {
        sample.log_prob.push_back(paths.log_prob[i][s].item<float>());
      }
      sample.reward = std::sin(static_cast<double>(3 * s) + static_cast<double>(g));
      sample.rewards["made_up"] = sample.reward;
      group.trajectories.push_back(std::move(sample));
    }
  }
  return groups;
}

struct Stepped {
  at::Tensor moved;  // The change of the weights.
  std::map<std::string, double> metrics;
};

Stepped StepOn(const PolicyKind& kind, const std::vector<rl::Group>& groups) {
  const auto policy = GpuSizedPolicy(kind);
  const at::Tensor before = policy->parameters().flat().detach().cpu().clone();
  rl::TrainerOptions options{.sampling = Spec(),
                             .run_seed = 3,
                             .updates = 2,
                             .clip_range = 1e-2,
                             .adamw = {.learning_rate = 1e-3}};
  options.kl.weight = 0.01;
  options.kl.space = rl::KlSpace::kMean;
  options.ema_enabled = false;
  const auto ranks = parallel::MakeSingleRank();
  rl::Trainer trainer(options, *policy, *ranks);
  const auto result = trainer.Step(LearnerStep(0), groups);
  EXPECT_TRUE(result.ok()) << result.status();
  return {.moved = policy->parameters().flat().detach().cpu() - before,
          .metrics = result.ok() ? result->metrics : std::map<std::string, double>()};
}

// The same rollouts, sampled on the CPU. AdamW divides by the gradient's own size, so elements with
// almost no gradient move by its rounding error.
// Promise: GPU code does what the CPU's does.
TEST_F(TrainingGpuTest, AWholeLearnerStepIsThatOfTheCpu) {
  const std::vector<rl::Group> groups = GroupsOf(GpuSizedPolicy({})->current());
  const Stepped here = StepOn({}, groups), there = StepOn({.device = gpu_}, groups);
  EXPECT_GT(here.moved.norm().item<double>(), 0);
  ExpectNear("movement", there.moved, here.moved, 2e-2);
  for (const char* name : {"train/policy_loss", "train/kl_div", "train/grad_norm"}) {
    EXPECT_NEAR(there.metrics.at(name), here.metrics.at(name),
                1e-4 + 1e-3 * std::abs(here.metrics.at(name)))
        << name;
  }
  EXPECT_LE(there.metrics.at("train/onpolicy_ratio_err"), 1e-3);
}

// Rollouts sampled on the GPU, as workers do: ratios are 1 up to the difference between batch
// sizes.
TEST_F(TrainingGpuTest, OnPolicyRatiosAreOneUpToRounding) {
  const PolicyKind kind{.device = gpu_};
  const std::vector<rl::Group> groups = GroupsOf(GpuSizedPolicy(kind)->current());
  const Stepped stepped = StepOn(kind, groups);
  RecordProperty("ratio_err", std::to_string(stepped.metrics.at("train/onpolicy_ratio_err")));
  EXPECT_LE(stepped.metrics.at("train/onpolicy_ratio_err"), 1e-3);
}

TEST_F(TrainingGpuTest, AnAdapterLeavesTheDeviceWithItsBits) {
  const auto here = GpuSizedPolicy({}), there = GpuSizedPolicy({.device = gpu_});
  const io::LoraExport exported{.tensors = io::AllFromTorch(there->parameters().tensors()),
                                .rank = 4,
                                .alpha = 8,
                                .targets = {"attn.to_q", "attn.to_v", "ff.net.2"}};
  EXPECT_TRUE(io::CheckLora(exported).ok()) << io::CheckLora(exported);
  for (const auto& [name, bytes] : io::AllFromTorch(here->parameters().tensors())) {
    EXPECT_EQ(exported.tensors.at(name).data == bytes.data, true) << name;
  }
}

}  // namespace
}  // namespace oxbow::model
