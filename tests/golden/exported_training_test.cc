// SPDX-License-Identifier: Apache-2.0
// A network that has C++ of its own trains to the same losses as its exported graph. Each draws its
// own paths with its own weights: nothing is put right on the way.
#include <iostream>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "core/flow/sampler.h"
#include "core/model/policy.h"
#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "tests/golden/exported_golden.h"

namespace oxbow::model {
namespace {

constexpr int kSteps = 5;        // The learner's.
constexpr int kTransitions = 4;  // Steps of a path.
constexpr uint32_t kGroupSize = 4;
constexpr int64_t kGroups = 2;
constexpr uint64_t kSeed = 11;
// For terms of the loss, which are of order 1: rounding of two updates a step, five steps long.
constexpr double kTermTolerance = 2e-5;
constexpr const char* kTerms[] = {"train/loss", "train/policy_loss", "train/kl_div"};
// Relative. AdamW moves a weight with hardly any gradient by the rounding of it.
constexpr double kGradientNormTolerance = 5e-4;

std::vector<std::string> NativeNames() {
  std::vector<std::string> names = ExportedNames();
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("sd3"); });
  return names;
}

flow::SamplingSpec Spec() {
  flow::SamplingSpec spec{
      .sigmas = flow::SigmaGrid(flow::ScheduleKind::kLinspace, kTransitions, 3.0),
      .dynamics = flow::DynamicsKind::kFlowSde,
      .eta = 0.7,
      .sde = std::vector<bool>(kTransitions, true)};
  spec.sde.back() = false;
  return spec;
}

// What is trained: weights, the prompts of kGroups groups, the shape of a latent.
struct Task {
  NamedTensors weights;
  Conditioning prompts;
  std::vector<int64_t> shape;
  LoraSpec lora;
};

// A group that the policy's weights draw. Rewards are drawn too, the same for everyone.
rl::Group DrawnGroup(const Task& task, const Policy& policy, uint64_t id, int64_t row,
                     PolicyVersion version) {
  rl::Group group{.id = GroupId(id), .conditioning = NarrowRows(task.prompts, row, 1)};
  const Conditioning rows = SelectRows(task.prompts, at::full({kGroupSize}, row, at::kLong));
  std::vector<flow::NoiseKey> keys;
  for (uint32_t s = 0; s < kGroupSize; ++s) keys.push_back({kSeed, id, s});
  const flow::Paths paths = flow::SamplePaths(Spec(), keys, task.shape, at::kFloat,
                                              [&](const at::Tensor& x, const at::Tensor& sigma) {
                                                return policy.sampler().Velocity(x, sigma, rows);
                                              });
  RandomStream rewards({.seed = kSeed + id});
  std::vector<float> drawn(kGroupSize);
  rewards.FillNormal(std::span(drawn));
  for (uint32_t s = 0; s < kGroupSize; ++s) {
    rl::Trajectory& sample = group.trajectories.emplace_back();
    sample.index = s;
    sample.latents = paths.latents.select(1, s).clone();
    sample.sde = Spec().sde;
    sample.behaviour_version.assign(kTransitions, version.value);
    sample.reward = drawn[s];
    for (int64_t i = 0; i < kTransitions; ++i) {
      sample.log_prob.push_back(paths.log_prob[i][s].item<float>());
    }
  }
  return group;
}

// The metrics of each step.
std::vector<std::map<std::string, double>> Train(
    const Task& task, const std::shared_ptr<const Architecture>& architecture, Trained trained) {
  auto policy = *Policy::Create({.architecture = architecture,
                                 .base = task.weights,
                                 .trained = trained,
                                 .lora = task.lora,
                                 .lora_seed = kSeed,
                                 .with_reference = true,
                                 .with_ema = false});
  rl::TrainerOptions options{.sampling = Spec(), .run_seed = kSeed, .updates = 2};
  options.clip_range = 0.2;
  options.kl.weight = 0.04;
  options.adamw.learning_rate = 1e-3;
  options.ema_enabled = false;
  const auto ranks = parallel::MakeSingleRank();
  rl::Trainer trainer(options, *policy, *ranks);
  std::vector<std::map<std::string, double>> metrics;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<rl::Group> groups;
    for (int64_t g = 0; g < kGroups; ++g) {
      const auto id = static_cast<uint64_t>(step * kGroups + g);
      groups.push_back(DrawnGroup(task, *policy, id, g, trainer.version()));
    }
    auto result = trainer.Step(LearnerStep(static_cast<uint64_t>(step)), groups);
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok()) metrics.push_back(std::move(result->metrics));
  }
  return metrics;
}

void ExpectTheSameLosses(const Task& task, const std::shared_ptr<const Architecture>& native,
                         const std::shared_ptr<const Architecture>& exported) {
  ASSERT_EQ(native->graph_json(), "") << "the table has the class itself";
  ASSERT_NE(exported->graph_json(), "");
  for (const Trained trained : {Trained::kLora, Trained::kFull}) {
    const auto ours = Train(task, native, trained), theirs = Train(task, exported, trained);
    ASSERT_EQ(ours.size(), size_t{kSteps});
    ASSERT_EQ(theirs.size(), size_t{kSteps});
    double worst = 0;
    for (size_t step = 0; step < kSteps; ++step) {
      for (const char* term : kTerms) {
        const double expected = ours[step].at(term);
        const double error =
            std::abs(theirs[step].at(term) - expected) / std::max(1.0, std::abs(expected));
        worst = std::max(worst, error);
        EXPECT_LE(error, kTermTolerance) << term << " of step " << step << ": " << expected;
      }
      const double norm = ours[step].at("train/grad_norm");
      EXPECT_NEAR(theirs[step].at("train/grad_norm"), norm, kGradientNormTolerance * norm);
      EXPECT_GT(norm, 0);
    }
    EXPECT_GT(ours.back().at("train/kl_div"), 0) << "nothing moved";
    std::cout << (trained == Trained::kLora ? "adapter" : "all weights") << ": " << worst << "\n";
  }
}

class ExportedTrainingTest : public ExportedGolden {};

// Promise: An exported graph is diffusers' network.

TEST_P(ExportedTrainingTest, TheLossesAreThoseOfItsOwnCode) {
  const ExportedCase& golden = cases_.at(0);
  ExpectTheSameLosses({.weights = weights_,
                       .prompts = golden.conditioning,
                       .shape = golden.x.sizes().slice(1).vec(),
                       .lora = spec_},
                      *ReadArchitecture(source_), architecture_);
}

// Promise: An exported graph is diffusers' network.

TEST(DigitsGraphTest, TrainsToTheLossesOfItsOwnCode) {
  at::set_num_threads(1);
  const std::filesystem::path model = OXBOW_SOURCE_DIR "/models/digits/transformer";
  const ArchitectureSource source{
      .class_name = "SD3Transformer2DModel",
      .config_json = *ReadFile(model / "config.json"),
      .graph_json = *io::ReadGraphFile(OXBOW_SOURCE_DIR "/tests/golden/graphs/digits.json.gz")};
  const auto config = nlohmann::json::parse(source.config_json);
  const auto file = io::ReadSafetensors(model / "diffusion_pytorch_model.safetensors").value();
  at::manual_seed(kSeed);
  const auto drawn = [&](std::vector<int64_t> shape, const char* width) {
    shape.push_back(config[width].get<int64_t>());
    return at::randn(shape);
  };
  Task task{.weights = *io::AllToTorch(file.tensors),
            .prompts = {{kPromptTokens, drawn({kGroups, 7}, "joint_attention_dim")},
                        {kPooledPrompt, drawn({kGroups}, "pooled_projection_dim")}},
            .shape = {config["in_channels"].get<int64_t>(), 8, 20},
            .lora = {.rank = 4, .alpha = 8, .targets = {"attn.to_q", "attn.to_v", "ff.net.2"}}};
  ExpectTheSameLosses(task, *ReadArchitecture(source), *exported::ReadExportedArchitecture(source));
}

INSTANTIATE_TEST_SUITE_P(Exported, ExportedTrainingTest, ::testing::ValuesIn(NativeNames()),
                         [](const auto& info) { return info.param; });

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExportedTrainingTest);

}  // namespace
}  // namespace oxbow::model
