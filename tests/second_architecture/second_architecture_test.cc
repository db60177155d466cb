// SPDX-License-Identifier: Apache-2.0
// A model of another architecture goes the whole way of a run: from a diffusers directory through
// registration, a worker's sampling, the wire and a learner step to new weights.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/philox.h"
#include "config/run_config.h"
#include "core/model/policy.h"
#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "rpc/convert_torch.h"
#include "rpc/server.h"
#include "run/model_facts.h"
#include "run/trainer_options.h"
#include "services/learner/run_setup.h"
#include "services/reward/reward_client.h"
#include "services/reward/reward_service.h"
#include "services/rollout/group_sampler.h"
#include "services/rollout/sampler_model.h"
#include "services/weights/snapshot_maker.h"
#include "tests/second_architecture/video_transformer.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kConfig[] = R"({"_class_name": "TestVideoTransformer", "channels": 3, "frames": 3,
                               "side": 4, "width": 16, "context_width": 5})";
constexpr char kIndex[] = R"({"_class_name": "TestVideoPipeline",
    "transformer": ["diffusers", "TestVideoTransformer"],
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]})";
constexpr uint32_t kGroupSize = 4;

class SecondArchitectureTest : public ::testing::TestWithParam<const char*> {
 protected:
  SecondArchitectureTest() {
    at::set_num_threads(1);
    fs::create_directories(model_ / "transformer");
    fs::create_directories(model_ / "scheduler");
    Write("model_index.json", kIndex);
    Write("transformer/config.json", kConfig);
    Write("scheduler/scheduler_config.json", R"({"use_dynamic_shifting": true})");
    EXPECT_TRUE(WriteFileAtomically(prompts_, "hop\nskip\na long jump\n").ok());
    model::NamedTensors weights;
    uint64_t subject = 0;
    for (const auto& [name, shape] : (*ReadVideoArchitecture(kConfig))->shapes()) {
      at::Tensor tensor = at::empty(shape, at::kFloat);
      RandomStream(StreamKey{.seed = 3, .group = ++subject})
          .FillNormal(std::span(tensor.mutable_data_ptr<float>(), tensor.numel()));
      weights[name] = tensor * 0.2;
    }
    EXPECT_TRUE(io::WriteSafetensors(model_ / "transformer/diffusion_pytorch_model.safetensors",
                                     {.tensors = io::AllFromTorch(weights)})
                    .ok());
  }

  void Write(const char* file, const char* content) {
    EXPECT_TRUE(WriteFileAtomically(model_ / file, content).ok());
  }

  // Four by six pixels, a full fine-tune or an adapter.
  v1::RunConfig Config() const {
    const auto resolved = config::LoadRunConfig("",
                                                {"run.name=video",
                                                 "model.path=" + model_.string(),
                                                 "prompts.train=" + prompts_.string(),
                                                 std::string("model.trained=") + GetParam(),
                                                 "model.lora.targets=[patches, mlp.in]",
                                                 "model.lora.rank=2",
                                                 "sampling.steps=4",
                                                 "sampling.sde_first=0",
                                                 "sampling.sde_count=2",
                                                 "sampling.height=4",
                                                 "sampling.width=6",
                                                 "sampling.shift=0",
                                                 "sampling.guidance=2",
                                                 "batch.groups=2",
                                                 "batch.group_size=4",
                                                 "batch.updates=1",
                                                 "method.kl_weight=0.01",
                                                 "replay.fraction=0",
                                                 "eval.every=0",
                                                 "ema.enabled=true",
                                                 "optimizer.learning_rate=0.01"},
                                                {});
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    return resolved->config;
  }

  ScopedDirectory scratch_;
  const fs::path model_ = scratch_.path() / "model";
  const fs::path prompts_ = scratch_.path() / "train.txt";
};

weights::TensorBytesByName BytesOf(const model::NamedTensors& tensors) {
  weights::TensorBytesByName bytes;
  for (const auto& [name, tensor] : tensors) bytes[name] = io::FromTorch(tensor.detach());
  return bytes;
}

// The snapshot that the learner publishes: its weights with a probe of them.
weights::VerifiedSnapshot Published(const learner::RunSetup& setup, model::Policy& policy,
                                    uint64_t version) {
  const weights::Snapshot snapshot =
      weights::MakeSnapshot({Epoch(1), PolicyVersion(version), LearnerStep(version)},
                            BytesOf(policy.frozen()), BytesOf(policy.parameters().tensors()));
  weights::VerifiedSnapshot verified{.manifest = snapshot.manifest, .chunks = snapshot.chunks};
  const auto shape =
      weights::ProbeShapeOf(*setup.model.architecture, setup.model.latent_shape, setup.negative);
  EXPECT_TRUE(shape.ok()) << shape.status();
  *verified.manifest.mutable_probe() = weights::RunProbe(policy.current(), *shape, 17);
  return verified;
}

rollout::RunSpec RegisteredAs(const learner::RunSetup& setup) {
  const auto spec = rollout::RunSpecFrom(
      learner::RegistrationOf(
          setup, Epoch(1), {.learner = "l:1", .sinks = {"s:1"}, .rewards = {"r:1"}, .buffers = {}})
          .value());
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

// Scores a clip by how many frames it has; keeps what it is shown.
class FrameScorer final : public reward::Scorer {
 public:
  const reward::RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 1; }
  std::vector<absl::StatusOr<reward::Score>> ScoreBatch(
      absl::Span<const reward::Item> items) override {
    std::vector<absl::StatusOr<reward::Score>> scores;
    for (const reward::Item& item : items) {
      shown.emplace_back(item.frames.begin(), item.frames.end());
      scores.emplace_back(reward::Score{.value = static_cast<double>(item.frames.size())});
    }
    return scores;
  }
  std::vector<std::vector<Image8>> shown;

 private:
  const reward::RewardFacts facts_{
      .name = "frames", .identity = "frames/1", .batch_max = 8, .videos = true};
};

// The frames of a group arrive at a scorer in another thread, over gRPC, as they were sampled.
void ScoreVideos(const std::vector<std::vector<Image8>>& media, const std::string& prompt) {
  std::vector<std::unique_ptr<reward::Scorer>> scorers;
  auto owned = std::make_unique<FrameScorer>();
  FrameScorer& scorer = *owned;
  scorers.push_back(std::move(owned));
  const reward::ScorerPanel panel(std::move(scorers));
  prometheus::Registry registry;
  reward::RewardMetrics metrics(registry, panel);
  reward::RewardService service({.batch_max = 8}, panel, metrics, Clock::Steady());
  const auto server = rpc::Server::Start({}, {&service}).value();
  const auto client = reward::RewardClient::Create({.endpoints = {server->endpoint()}}).value();
  const std::vector<reward::Frames> frames(media.begin(), media.end());
  for (const auto& score : client->ScoreMedia(prompt, "", frames)) {
    ASSERT_TRUE(score.ok()) << score.status();
    EXPECT_EQ(score->at("frames"), 3);
  }
  EXPECT_TRUE(scorer.shown == media);
  for (const std::vector<Image8>& clip : scorer.shown) {
    ASSERT_EQ(clip.size(), 3);
    for (const Image8& frame : clip) EXPECT_TRUE(frame.height == 4 && frame.width == 6);
    EXPECT_NE(clip[0], clip[1]);
  }
}

// The groups of one step, sampled by a worker and sent to the learner as messages.
std::vector<rl::Group> GroupsOf(const learner::RunSetup& setup, const rollout::RunSpec& spec,
                                rollout::SamplerModel& keeper,
                                learner::ConditioningCache& prompts) {
  std::vector<rollout::GroupTask> tasks;
  for (uint64_t group = 0; group < setup.config.batch().groups(); ++group) {
    const auto entry = prompts.Get(setup.train[group]);
    EXPECT_TRUE(entry.ok()) << entry.status();
    v1::Conditioning sent;
    EXPECT_TRUE(sent.ParseFromString(*(*entry)->sent.bytes));
    auto conditioning = rpc::ConditioningFromProto(sent, spec.architecture->conditioning());
    EXPECT_TRUE(conditioning.ok()) << conditioning.status();
    tasks.push_back({.group = GroupId(group),
                     .group_size = kGroupSize,
                     .conditioning = *std::move(conditioning)});
  }
  std::vector<rl::Group> groups;
  const model::VelocityModel& network = **keeper.ForGroups();
  std::vector<rollout::SampledGroup> sampled = rollout::SampleGroups(
      spec,
      [&] {
        return rollout::VersionedNetwork{network, keeper.version()};
      },
      keeper.decoder(), tasks);
  for (size_t i = 0; i < sampled.size(); ++i) {
    ScoreVideos(sampled[i].media, setup.train[i].text());
    const v1::Prompt& prompt = setup.train[i];
    rl::Group sent{.id = GroupId(i),
                   .prompt_id = PromptId(prompt.id()),
                   .prompt_text = prompt.text(),
                   .prompt_metadata_json = prompt.metadata_json()};
    for (rl::Trajectory& sample : sampled[i].trajectories) {
      sample.reward = -sample.latents[-1].mean().item<double>();
      sent.trajectories.push_back(std::move(sample));
    }
    const v1::Group message = rpc::ToProto(sent, setup.sampling.Id(), spec.storage);
    const absl::Status header = learner::CheckHeader(message, learner::GroupRulesOf(setup));
    EXPECT_TRUE(header.ok()) << header;
    absl::StatusOr<rl::Group> received = rpc::GroupFromProto(message);
    EXPECT_TRUE(received.ok()) << received.status();
    received->conditioning = (*prompts.Get(prompt))->tensors;
    groups.push_back(*std::move(received));
  }
  return groups;
}

// Promise: A video is a video everywhere.
TEST_P(SecondArchitectureTest, TrainsThroughTheWholeStack) {
  auto setup = learner::ReadSetup(Config());
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_THAT(setup->model.latent_shape, ElementsAre(3, 3, 4, 6));
  auto made = learner::MakePolicy(*setup);
  ASSERT_TRUE(made.ok()) << made.status();
  model::Policy& policy = **made;
  EXPECT_TRUE(policy.frozen().contains(kFrameTable));
  EXPECT_FALSE(policy.parameters().Has(kFrameTable));
  const auto prompts = learner::WarmConditioning(*setup, 0, 1);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  const auto ranks = parallel::MakeSingleRank();
  rl::Trainer trainer(run::MakeTrainerOptions(setup->config, setup->sampling, setup->window),
                      policy, *ranks);

  const rollout::RunSpec spec = RegisteredAs(*setup);
  rollout::SamplerModel keeper(spec);
  const at::Tensor table = policy.frozen().at(kFrameTable).clone();
  for (uint64_t step = 0; step < 2; ++step) {
    weights::ProbeComparison comparison;
    const absl::Status applied = keeper.Apply(Published(*setup, policy, step), comparison);
    ASSERT_TRUE(applied.ok()) << applied;
    EXPECT_TRUE(comparison.bits_equal) << comparison.difference_max;
    const at::Tensor before = policy.parameters().flat().clone();
    const auto result = trainer.Step(LearnerStep(step), GroupsOf(*setup, spec, keeper, **prompts));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_NEAR(result->metrics.at("train/ratio_mean"), 1, 1e-6) << "on-policy";
    EXPECT_FALSE(at::equal(policy.parameters().flat(), before)) << "step " << step;
  }
  EXPECT_TRUE(at::equal(policy.frozen().at(kFrameTable), table));
  EXPECT_FALSE(at::equal(policy.ema_parameters().flat(), policy.parameters().flat()));
}

TEST_P(SecondArchitectureTest, TrainedWeightsComeBackFromAFile) {
  auto setup = *learner::ReadSetup(Config());
  auto again = *learner::ReadSetup(Config());
  const auto policy = *learner::MakePolicy(setup);
  {
    const at::NoGradGuard no_grad;
    policy->parameters().flat().add_(0.05);
  }
  const std::string file =
      io::SerializeSafetensors({.tensors = BytesOf(policy->parameters().tensors())});
  const auto restored = *learner::MakePolicy(again);
  const auto tensors = io::AllToTorch(io::ParseSafetensors(file, "weights")->tensors);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_TRUE(restored->Load(*tensors).ok());
  const auto prompts = setup.model.prompts->Get({"hop", "a long jump"});
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::ones({2, 3, 3, 4, 6}) * 0.3, sigma = at::tensor({0.9F, 0.2F});
  const at::Tensor v = policy->current().Velocity(x, sigma, *prompts);
  EXPECT_TRUE(at::equal(restored->current().Velocity(x, sigma, *prompts), v));
  EXPECT_FALSE(at::equal(policy->reference().Velocity(x, sigma, *prompts), v));
  EXPECT_FALSE(at::equal(v[0], v[1]));
}

TEST_P(SecondArchitectureTest, ItsFactsAreKnownBeforeItIsLoaded) {
  const auto facts = run::ReadModelFacts(Config());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_THAT(facts->latent_shape, ElementsAre(3, 3, 4, 6));
  EXPECT_EQ(facts->conditioning_bytes, 4u * (7 * 5 + 7 + 1));
  EXPECT_EQ(facts->decoder_parameters, 0u);
  const uint64_t table = 3 * 16;
  EXPECT_EQ(facts->trained_parameters, std::string(GetParam()) == "full"
                                           ? facts->transformer_parameters - table
                                           : 2u * (12 + 16) + 2u * (16 + 32));
  const auto setup = learner::ReadSetup(Config());
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_EQ(facts->schedule.shift, setup->model.schedule.shift) << "by the tokens of three frames";
}

TEST_P(SecondArchitectureTest, AModelThatTheTablesDoNotHaveIsRefusedByName) {
  Write("model_index.json", R"({"_class_name": "StableDiffusion3Pipeline"})");
  EXPECT_THAT(std::string(learner::ReadSetup(Config()).status().message()),
              HasSubstr("unsupported pipeline (TestVideoPipeline is supported)"));
}

INSTANTIATE_TEST_SUITE_P(Trained, SecondArchitectureTest, ::testing::Values("full", "lora"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace oxbow::testing
