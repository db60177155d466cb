// SPDX-License-Identifier: Apache-2.0
// Whole training steps against PyTorch: what our sampler and trainer make of a tiny SD3, FLUX or
// Wan with an adapter, and what diffusers, peft, autograd and torch.optim make of it by Flow-GRPO's
// arithmetic (tools/make_step_goldens.py). Same weights, noise and rewards; two epochs of two
// updates.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "core/flow/sampler.h"
#include "core/model/architecture.h"
#include "core/model/policy.h"
#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "gtest/gtest.h"
#include "io/graph_files.h"
#include "tests/golden/model_golden.h"

namespace oxbow::model {
namespace {

constexpr int kEpochs = 2;
constexpr int kUpdates = 2;
constexpr int kSteps = 5;

// What updates may differ by, of all they moved the weights with a gradient. AdamW divides by the
// gradient's own size, so that elements with hardly any gradient move by its rounding.
constexpr double kMovementTolerance = 1e-4;
// For one weight with a gradient. An update moves it by 3e-4.
constexpr double kWeightTolerance = 3e-7;
// A gradient under ten times AdamW's epsilon: its rounding decides how far the weight moves.
constexpr double kHardlyAnyGradient = 1e-7;
constexpr double kShareWithoutGradient = 0.01;    // So many weights at most may have hardly any.
constexpr double kWholeGradientTolerance = 1e-4;  // For a whole gradient, relative.
constexpr double kScoreTolerance = 5e-6;          // For a log-prob; ratios are clipped at 1e-4.
constexpr double kTermTolerance = 2e-5;           // For terms of the loss, which are of order 1.

double Largest(const at::Tensor& tensor) { return tensor.abs().max().item<double>(); }

double RelativeDistance(const at::Tensor& ours, const at::Tensor& golden) {
  return ((ours - golden).norm() / golden.norm()).item<double>();
}

class TrainingStepGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  double Number(const std::string& key) const { return std::stod(golden_.metadata.at(key)); }
  std::string Word(const std::string& key) const {  // Empty where the case does not say it.
    const auto found = golden_.metadata.find(key);
    return found == golden_.metadata.end() ? "" : found->second;
  }
  double EmbeddedGuidance() const {
    return golden_.metadata.contains("embedded_guidance") ? Number("embedded_guidance") : 0;
  }
  uint64_t run_seed() const { return std::stoull(golden_.metadata.at("run_seed")); }
  const at::Tensor& Epoch(int epoch, const std::string& what) const {
    return golden_.out.at(absl::StrCat("epoch", epoch, ".", what));
  }
  const at::Tensor& Update(int update, const std::string& what) const {
    return golden_.out.at(absl::StrCat("update", update, ".", what));
  }
  int64_t groups() const { return golden_.in.at("rewards").size(1); }
  int64_t group_size() const { return golden_.in.at("rewards").size(2); }

  flow::SamplingSpec Spec() const {
    const std::map<std::string, flow::ScheduleKind> schedules = {
        {"", flow::ScheduleKind::kDiffusersDefault},
        {"linspace", flow::ScheduleKind::kLinspace},
        {"unipc_flow_whole", flow::ScheduleKind::kUnipcFlowWhole}};
    const bool of_wan = Word("dynamics") == "wan_sde";
    flow::SamplingSpec spec{
        .sigmas = flow::SigmaGrid(schedules.at(Word("schedule")), kSteps, Number("shift")),
        .dynamics = of_wan ? flow::DynamicsKind::kWanSde : flow::DynamicsKind::kFlowSde,
        .eta = Number("eta"),
        .sde = std::vector<bool>(kSteps, true),
        .guidance = Number("guidance"),
        .embedded_guidance = EmbeddedGuidance(),
        .whole_timesteps = of_wan};
    spec.sde.back() = false;
    return spec;
  }

  rl::TrainerOptions Options() const {
    rl::TrainerOptions options{.sampling = Spec(), .run_seed = run_seed(), .updates = kUpdates};
    options.clip_range = Number("clip");
    options.advantage.std = golden_.metadata.at("global_std") == "True" ? rl::AdvantageStd::kGlobal
                                                                        : rl::AdvantageStd::kGroup;
    options.kl.weight = Number("beta");
    options.kl.space = Word("kl") == "transition" ? rl::KlSpace::kTransition : rl::KlSpace::kMean;
    options.kl.all_steps = true;
    options.adamw.learning_rate = Number("learning_rate");
    options.adamw.weight_decay = Number("weight_decay");
    options.grad_norm_max = Number("norm_max");
    options.ema_enabled = false;
    return options;
  }

  std::shared_ptr<const Architecture> MadeArchitecture() const {
    auto architecture = ReadArchitecture(
        {.class_name = Word("class"),
         .config_json = golden_.config,
         .graph_json = *io::ReadGraphFile(OXBOW_SOURCE_DIR "/tests/golden/" + Word("graph"))});
    EXPECT_TRUE(architecture.ok()) << architecture.status();
    return *std::move(architecture);
  }

  std::unique_ptr<Policy> MakePolicy() const {
    auto policy =
        Policy::Create({.architecture = MadeArchitecture(),
                        .base = golden_.weights,
                        .trained = Trained::kLora,
                        .lora = {.rank = std::stol(golden_.metadata.at("rank")),
                                 .alpha = Number("alpha"),
                                 .targets = nlohmann::json::parse(golden_.metadata.at("targets"))},
                        .with_ema = false,
                        .guidance = Number("guidance"),
                        .negative = Named("negative_", at::zeros({1}, at::kLong)),
                        .embedded_guidance = EmbeddedGuidance(),
                        .whole_timesteps = Spec().whole_timesteps});
    EXPECT_TRUE(policy.ok()) << policy.status();
    EXPECT_TRUE((*policy)->Load(golden_.adapter).ok());
    return *std::move(policy);
  }

  // The matrices as they were before update `update`, flat.
  at::Tensor Before(int update) const {
    if (update > 0) return Update(update - 1, "adapter");
    std::vector<at::Tensor> parts;
    for (const auto& [name, tensor] : golden_.adapter) parts.push_back(tensor.flatten());
    return at::cat(parts);
  }
  void Set(Policy& policy, const at::Tensor& flat) const {
    const at::NoGradGuard no_grad;
    policy.parameters().flat().copy_(flat);
  }

  // The conditioning of samples, which are numbered through all groups.
  Conditioning ConditioningOf(const at::Tensor& samples) const {
    const at::Tensor group = at::div(samples, group_size(), "floor");
    return Named("", group);
  }
  // Rows of the inputs whose names start with `prefix`. Wan has no pooled prompt.
  Conditioning Named(const std::string& prefix, const at::Tensor& rows) const {
    Conditioning conditioning;
    conditioning[kPromptTokens] = golden_.in.at(prefix + "tokens").index_select(0, rows);
    const auto pooled = golden_.in.find(prefix + "pooled");
    if (pooled != golden_.in.end()) {
      conditioning[kPooledPrompt] = pooled->second.index_select(0, rows);
    }
    return conditioning;
  }

  std::vector<flow::NoiseKey> Keys(int epoch) const {
    std::vector<flow::NoiseKey> keys;
    for (int64_t g = 0; g < groups(); ++g) {
      for (int64_t s = 0; s < group_size(); ++s) {
        keys.push_back(
            {run_seed(), static_cast<uint64_t>(epoch * groups() + g), static_cast<uint32_t>(s)});
      }
    }
    return keys;
  }

  flow::Paths SampleEpoch(const Policy& policy, int epoch) const {
    const Conditioning conditioning =
        ConditioningOf(at::arange(groups() * group_size(), at::kLong));
    return flow::SamplePaths(Spec(), Keys(epoch), Epoch(0, "latents").sizes().slice(2), at::kFloat,
                             [&](const at::Tensor& x, const at::Tensor& sigma) {
                               return policy.sampler().Velocity(x, sigma, conditioning);
                             });
  }

  std::vector<rl::Group> GroupsOf(const flow::Paths& paths, int epoch,
                                  PolicyVersion version) const {
    std::vector<rl::Group> made;
    for (int64_t g = 0; g < groups(); ++g) {
      rl::Group& group = made.emplace_back();
      group.id = GroupId(static_cast<uint64_t>(epoch * groups() + g));
      group.conditioning = ConditioningOf(at::full({1}, g * group_size(), at::kLong));
      for (int64_t s = 0; s < group_size(); ++s) {
        const int64_t row = g * group_size() + s;
        rl::Trajectory sample{.index = static_cast<uint32_t>(s),
                              .latents = paths.latents.select(1, row).clone(),
                              .sde = Spec().sde,
                              .behaviour_version = std::vector<uint64_t>(kSteps, version.value),
                              .reward = golden_.in.at("rewards")[epoch][g][s].item<double>()};
        for (int64_t i = 0; i < kSteps; ++i) {
          sample.log_prob.push_back(paths.log_prob[i][row].item<float>());
        }
        group.trajectories.push_back(std::move(sample));
      }
    }
    return made;
  }

  void ExpectPaths(const flow::Paths& paths, int epoch) const {
    ExpectClose(paths.latents, Epoch(epoch, "latents"));
    const at::Tensor& scores = Epoch(epoch, "log_prob");
    EXPECT_LE(Largest(paths.log_prob.narrow(0, 0, kSteps - 1) - scores), kScoreTolerance);
  }

  const Golden golden_{GetParam()};
};

TEST_P(TrainingStepGoldenTest, NoiseLevelsAndNoiseAreTheSame) {
  const std::vector<double> sigmas = Spec().sigmas;
  for (int64_t i = 0; i <= kSteps; ++i) {
    EXPECT_NEAR(sigmas[static_cast<size_t>(i)], golden_.out.at("sigmas")[i].item<double>(), 1e-6);
  }
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const at::Tensor& noise = Epoch(epoch, "noise");
    const std::vector<flow::NoiseKey> keys = Keys(epoch);
    for (int64_t n = 0; n < noise.size(0); ++n) {
      const uint32_t step = n == 0 ? uint32_t{kInitialLatent} : static_cast<uint32_t>(n - 1);
      for (int64_t k = 0; k < noise.size(1); ++k) {
        const at::Tensor own =
            flow::DrawNoise(keys[static_cast<size_t>(k)], step, noise.sizes().slice(2));
        EXPECT_LE(Largest(own - noise[n][k]), 1e-6) << "noise " << n << " of sample " << k;
      }
    }
  }
}

// Promise: A whole step is that of PyTorch. Two epochs of two updates on a tiny SD3 (guided and
// not), FLUX (guidance as an input) and Wan (a video, two forwards a step, its own noise, the KL
// with the length of the step) give the paths, log-probs, gradients and matrices of diffusers,
// peft, autograd and torch.optim: matrices within 1e-6 each, what the updates moved within 2e-4.
TEST_P(TrainingStepGoldenTest, PathsAndLogProbsAreTheSameUnderTheSameWeights) {
  const auto policy = MakePolicy();
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    Set(*policy, Before(epoch * kUpdates));
    ExpectPaths(SampleEpoch(*policy, epoch), epoch);
    for (int update = epoch * kUpdates; update < (epoch + 1) * kUpdates; ++update) {
      Set(*policy, Before(update));
      const at::Tensor& samples = Update(update, "rows");
      const Conditioning conditioning = ConditioningOf(samples);
      for (int step = 0; step + 1 < kSteps; ++step) {
        const at::NoGradGuard no_grad;
        const at::Tensor x = Epoch(epoch, "latents")[step].index_select(0, samples);
        const at::Tensor next = Epoch(epoch, "latents")[step + 1].index_select(0, samples);
        const at::Tensor sigma =
            at::full({x.size(0)}, Spec().sigmas[static_cast<size_t>(step)], at::kFloat);
        const at::Tensor scores = flow::ScoreTransition(
            Spec(), step, x, next, policy->current().Velocity(x, sigma, conditioning));
        EXPECT_LE(Largest(scores - Update(update, "log_prob")[step]), kScoreTolerance)
            << "update " << update << ", step " << step;
      }
    }
  }
}

// Nothing is put right on the way: later updates start from our own earlier ones.
// Promise: A whole step is that of PyTorch.
TEST_P(TrainingStepGoldenTest, UpdatesAreThoseOfFlowGrpo) {
  const auto policy = MakePolicy();
  const auto ranks = parallel::MakeSingleRank();
  rl::Trainer trainer(Options(), *policy, *ranks);
  // Hooks run in every backward pass, of which an update has one: with the weights it starts from.
  std::vector<at::Tensor> weights;
  std::map<std::string, std::vector<at::Tensor>> gradients;
  const std::string& first = policy->parameters().tensors().begin()->first;
  for (const auto& [name, leaf] : policy->parameters().tensors()) {
    leaf.register_hook([&, name = name](const at::Tensor& gradient) {
      gradients[name].push_back(gradient.detach().clone().flatten());
      if (name == first) weights.push_back(policy->parameters().flat().detach().clone());
    });
  }
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const flow::Paths paths = SampleEpoch(*policy, epoch);
    ExpectPaths(paths, epoch);
    const auto result = trainer.Step(LearnerStep(static_cast<uint64_t>(epoch)),
                                     GroupsOf(paths, epoch, trainer.version()));
    ASSERT_TRUE(result.ok()) << result.status();
    const at::Tensor terms =
        (Update(epoch * kUpdates, "terms") + Update(epoch * kUpdates + 1, "terms")) / kUpdates;
    int64_t term = 0;
    for (const char* name : {"train/policy_loss", "train/kl_div", "train/clip_frac_total",
                             "train/clip_frac_zero_grad", "train/grad_norm"}) {
      EXPECT_NEAR(result->metrics.at(name), terms[term++].item<double>(), kTermTolerance) << name;
    }
  }
  weights.push_back(policy->parameters().flat().detach().clone());
  at::Tensor rounding_decides = at::zeros_like(weights[0]).to(at::kBool);
  ASSERT_EQ(weights.size(), size_t{kEpochs * kUpdates + 1});
  for (int update = 0; update < kEpochs * kUpdates; ++update) {
    const auto u = static_cast<size_t>(update);
    std::vector<at::Tensor> parts;
    // The last block's prompt queries attend to nothing, so their gradient is never needed.
    for (const auto& [name, leaf] : policy->parameters().tensors()) {
      const bool used = gradients.contains(name);
      parts.push_back(used ? gradients.at(name).at(u) : at::zeros({leaf.numel()}));
    }
    const double gradient = RelativeDistance(at::cat(parts), Update(update, "gradient"));
    // A gradient of exactly zero moves no weight, so nothing is left to its rounding.
    const at::Tensor size = Update(update, "gradient").abs();
    rounding_decides |= (size > 0) & (size < kHardlyAnyGradient);
    const auto decided = [&](const at::Tensor& moved) {
      return moved.masked_fill(rounding_decides, 0);
    };
    const double movement = RelativeDistance(decided(weights[u + 1] - weights[0]),
                                             decided(Update(update, "adapter") - Before(0)));
    EXPECT_LE(rounding_decides.to(at::kFloat).mean().item<double>(), kShareWithoutGradient);
    const double weight = Largest(decided(weights[u + 1] - Update(update, "adapter")));
    EXPECT_LE(gradient, kWholeGradientTolerance) << "update " << update;
    EXPECT_LE(movement, kMovementTolerance) << "update " << update;
    EXPECT_LE(weight, kWeightTolerance) << "update " << update;
    std::cout << "update " << update << ": gradient " << gradient << ", movement " << movement
              << " relative; largest difference of a weight " << weight << "\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TrainingStepGoldenTest, ::testing::ValuesIn(GoldenNames("step")),
                         [](const auto& info) { return info.param; });

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TrainingStepGoldenTest);

}  // namespace
}  // namespace oxbow::model
