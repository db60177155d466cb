// The tensors of a run come back from a checkpoint as they were, or not at all.
#include "services/learner/checkpointing.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "core/parallel/ranks.h"
#include "tests/testing/scoped_directory.h"
#include "tests/testing/tiny_model.h"

namespace oxbow::learner {
namespace {

using ::testing::HasSubstr;

v1::RunConfig Config() {
  v1::RunConfig config;
  config.mutable_run()->set_steps(20);
  config.mutable_optimizer()->set_learning_rate(1e-3);
  config.mutable_checkpoint()->set_keep(2);
  config.mutable_ema()->set_enabled(true);
  return config;
}

// The tensors of a learner, all made from `seed`.
struct Learner {
  explicit Learner(uint64_t seed) {
    model::Policy::Options options{
        .architecture = model::MakeSd3Architecture(rollout::TinyParams()),
        .with_reference = false,
    };
    uint64_t subject = 0;
    for (const auto& [name, shape] : model::Sd3Shapes(rollout::TinyParams())) {
      options.base[name] = rollout::TinyNoise(seed, ++subject, shape);
    }
    policy = model::Policy::Create(std::move(options)).value();
    trainer = std::make_unique<rl::Trainer>(rl::TrainerOptions{}, *policy, *ranks);

    const at::NoGradGuard no_grad;
    const at::IntArrayRef size = policy->parameters().flat().sizes();
    policy->ema_parameters().flat().copy_(rollout::TinyNoise(seed, ++subject, size));
    EXPECT_TRUE(trainer
                    ->LoadState({{"adamw.first_moment", rollout::TinyNoise(seed, ++subject, size)},
                                 {"adamw.second_moment", rollout::TinyNoise(seed, ++subject, size)},
                                 {"counters", at::tensor(std::vector<int64_t>{
                                                  static_cast<int64_t>(10 + seed), 9})}})
                    .ok());
  }

  // Every tensor a run goes on from.
  std::map<std::string, at::Tensor> Everything() const {
    std::map<std::string, at::Tensor> tensors = *trainer->State();
    tensors["weights"] = policy->parameters().flat().detach().clone();
    tensors["average"] = policy->ema_parameters().flat().detach().clone();
    return tensors;
  }

  std::unique_ptr<model::Policy> policy;
  std::unique_ptr<parallel::Ranks> ranks = parallel::MakeSingleRank();
  std::unique_ptr<rl::Trainer> trainer;
};

bool Equal(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    if (!b.count(name) || !at::equal(tensor, b.at(name))) return false;
  }
  return true;
}

class CheckpointingTest : public ::testing::Test {
 protected:
  RunState StateAt(uint64_t step) { return {.committed_steps = step, .policy_version = 2 * step}; }

  const oxbow::testing::ScopedDirectory directory_{oxbow::testing::ScopedDirectory::Memory()};
  const Checkpointing checkpointing_{directory_.path(), Config()};
};

TEST_F(CheckpointingTest, EveryTensorComesBackBitForBitFromTheNewest) {
  const Learner first(1), second(2);
  ASSERT_TRUE(checkpointing_.Write(StateAt(3), *first.policy, *first.trainer).ok());
  ASSERT_TRUE(checkpointing_.Write(StateAt(4), *second.policy, *second.trainer).ok());

  Learner resumed(3);
  const auto newest = checkpointing_.LoadNewest();
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->state.committed_steps, 4u);
  EXPECT_EQ(newest->state.policy_version, 8u);
  ASSERT_FALSE(Equal(resumed.Everything(), second.Everything()));
  const absl::Status restored = checkpointing_.Restore(*newest, *resumed.policy, *resumed.trainer);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_TRUE(Equal(resumed.Everything(), second.Everything()));
  EXPECT_EQ(resumed.trainer->version(), PolicyVersion(12));
}

TEST_F(CheckpointingTest, NoCheckpointIsNotFound) {
  EXPECT_EQ(checkpointing_.LoadNewest().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointingTest, OnlyHowLongHowOftenAndWhereMayChangeOverAResume) {
  const Learner learner(1);
  ASSERT_TRUE(checkpointing_.Write(StateAt(3), *learner.policy, *learner.trainer).ok());

  v1::RunConfig longer = Config();
  longer.mutable_run()->set_steps(500);
  longer.mutable_eval()->set_every(7);
  longer.mutable_checkpoint()->set_keep(5);
  longer.mutable_services()->set_rollout_workers(3);
  longer.mutable_reward()->add_endpoints("elsewhere:1");
  EXPECT_TRUE(Checkpointing(directory_.path(), longer).LoadNewest().ok());

  v1::RunConfig other = Config();
  other.mutable_optimizer()->set_learning_rate(2e-3);
  const absl::Status refused = Checkpointing(directory_.path(), other).LoadNewest().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another config"));
}

TEST_F(CheckpointingTest, AFileThatIsMissingIsNamed) {
  const Learner learner(1);
  ASSERT_TRUE(checkpointing_.Write(StateAt(3), *learner.policy, *learner.trainer).ok());
  for (const std::string file :
       {"weights.safetensors", "ema.safetensors", "optimizer.safetensors"}) {
    Checkpoint checkpoint = *checkpointing_.LoadNewest();
    ASSERT_EQ(checkpoint.files.erase(file), 1u);
    Learner resumed(2);
    const absl::Status status =
        checkpointing_.Restore(checkpoint, *resumed.policy, *resumed.trainer);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
  }
}

TEST_F(CheckpointingTest, KeepsAsManyAsTheConfigSays) {
  const Learner learner(1);
  for (const uint64_t step : {3u, 6u, 9u}) {
    ASSERT_TRUE(checkpointing_.Write(StateAt(step), *learner.policy, *learner.trainer).ok());
  }
  const std::filesystem::path kept = directory_.path() / "checkpoints";
  EXPECT_FALSE(std::filesystem::exists(kept / "step_000003"));
  EXPECT_TRUE(std::filesystem::exists(kept / "step_000006"));
  EXPECT_TRUE(std::filesystem::exists(kept / "step_000009"));
}

}  // namespace
}  // namespace oxbow::learner
