// SPDX-License-Identifier: Apache-2.0
// The tensors of a run come back from a checkpoint as they were, or not at all.
#include "services/learner/checkpoint/checkpointing.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "config/fingerprint.h"
#include "config/run_config.h"
#include "core/parallel/ranks.h"
#include "services/learner/checkpoint/checkpoint_tensors.h"
#include "services/weights/snapshot_maker.h"
#include "tests/testing/own_memory.h"
#include "tests/testing/scoped_directory.h"
#include "tests/testing/tiny_model.h"

namespace oxbow::learner {
namespace {

using ::oxbow::testing::ForgetPeakMemory;
using ::oxbow::testing::OwnMemory;
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
  explicit Learner(uint64_t seed, rl::MomentPlace moments = rl::MomentPlace::kWithWeights) {
    model::Policy::Options options{
        .architecture = rollout::TinyArchitecture(),
        .with_reference = false,
    };
    uint64_t subject = 0;
    for (const auto& [name, shape] : rollout::TinyArchitecture()->shapes()) {
      options.base[name] = rollout::TinyNoise(seed, ++subject, shape);
    }
    policy = model::Policy::Create(std::move(options)).value();
    trainer =
        std::make_unique<rl::Trainer>(rl::TrainerOptions{.moments = moments}, *policy, *ranks);

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
  static RunState StateAt(uint64_t step) {
    return {.committed_steps = step, .policy_version = 2 * step};
  }

  static absl::Status Write(const Checkpointing& checkpointing, uint64_t step,
                            const Learner& learner) {
    CheckpointCopy copy = checkpointing.CopyWeights(*learner.policy);
    Checkpointing::AddTrainerState(*learner.trainer, 0, 1, copy);
    return checkpointing.Write(StateAt(step), std::move(copy)).status();
  }
  absl::Status Write(uint64_t step, const Learner& learner) const {
    return Write(checkpointing_, step, learner);
  }

  static absl::Status Restore(const Checkpointing& checkpointing, const Checkpoint& checkpoint,
                              Learner& learner) {
    OXBOW_RETURN_IF_ERROR(checkpointing.RestoreWeights(checkpoint, *learner.policy));
    OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors state, checkpointing.TrainerState(checkpoint));
    return learner.trainer->LoadState(state);
  }

  const oxbow::testing::ScopedDirectory directory_{oxbow::testing::ScopedDirectory::Memory()};
  const Checkpointing checkpointing_{directory_.path(), Config()};
};

// Promise: Resume continues from the checkpoint.
TEST_F(CheckpointingTest, EveryTensorComesBackBitForBitFromTheNewest) {
  const Learner first(1), second(2);
  ASSERT_TRUE(Write(3, first).ok());
  ASSERT_TRUE(Write(4, second).ok());

  Learner resumed(3);
  const auto newest = checkpointing_.LoadNewest();
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->state.committed_steps, 4u);
  EXPECT_EQ(newest->state.policy_version, 8u);
  ASSERT_FALSE(Equal(resumed.Everything(), second.Everything()));
  const absl::Status restored = Restore(checkpointing_, *newest, resumed);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_TRUE(Equal(resumed.Everything(), second.Everything()));
  EXPECT_EQ(resumed.trainer->version(), PolicyVersion(12));
}

TEST_F(CheckpointingTest, NoCheckpointIsNotFound) {
  EXPECT_EQ(checkpointing_.LoadNewest().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointingTest, OnlyHowLongHowOftenAndWhereMayChangeOverAResume) {
  const Learner learner(1);
  ASSERT_TRUE(Write(3, learner).ok());

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
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("changed by hand in " + (directory_.path() / "config.resolved.yaml").string()));
}

// A checkpoint of an older version knew name, place and paths of its run by the fingerprint. Here
// is one that was made with `config`.
class FormerCheckpointTest : public CheckpointingTest {
 protected:
  void MakeFormer(const v1::RunConfig& config) {
    const Learner learner(1);
    ASSERT_TRUE(Write(Checkpointing(directory_.path(), config), 3, learner).ok());
    const auto path = directory_.path() / "checkpoints/step_000003/manifest.json";
    CheckpointManifest manifest = ParseManifest(*ReadFile(path)).value();
    manifest.state.config_sha256 = config::FingerprintOf(config, config::FingerprintAge::kFormer);
    ASSERT_TRUE(WriteFileAtomically(path, ManifestText(manifest)).ok());
  }
};

// Promise: A run goes on wherever it lies.
TEST_F(FormerCheckpointTest, GoesOnAtItsPlaceAndElsewhereIfTheRunSaysWhatItWas) {
  config::ResolvedConfig before = config::LoadRunConfig("", {"run.name=a"}, {}).value();
  MakeFormer(before.config);
  v1::RunConfig renamed = before.config;
  EXPECT_TRUE(Checkpointing(directory_.path(), renamed).LoadNewest().ok());
  renamed.mutable_run()->set_name("b");
  EXPECT_FALSE(Checkpointing(directory_.path(), renamed).LoadNewest().ok());
  ASSERT_TRUE(config::WriteResolved(before, directory_.path() / config::kFormerConfig).ok());
  const auto found = Checkpointing(directory_.path(), renamed).LoadNewest();
  EXPECT_TRUE(found.ok()) << found.status();
  renamed.mutable_model()->set_path("another");
  EXPECT_THAT(
      std::string(Checkpointing(directory_.path(), renamed).LoadNewest().status().message()),
      HasSubstr("do not say which model"));
  renamed.mutable_model()->set_path(before.config.model().path());
  renamed.mutable_optimizer()->set_learning_rate(1);
  EXPECT_FALSE(Checkpointing(directory_.path(), renamed).LoadNewest().ok());
}

// Promise: Resume continues from the checkpoint.
TEST_F(CheckpointingTest, AnotherModelIsRefusedByItsComponent) {
  RunState state;
  EXPECT_TRUE(checkpointing_.CheckModel(state, {{"vae", "a"}}).ok()) << "of an older version";
  state.model_sha256 = {{"transformer", "a"}, {"text_encoder", "b"}};
  EXPECT_TRUE(checkpointing_.CheckModel(state, {{"transformer", "a"}}).ok())
      << "encoders may be deleted once prompts are encoded";
  const absl::Status refused =
      checkpointing_.CheckModel(state, {{"transformer", "a"}, {"text_encoder", "c"}});
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("text_encoder is another"));
}

// Prompts of evaluation change no training.
TEST_F(CheckpointingTest, HeldOutPromptsMayChange) {
  const Learner learner(1);
  const auto with = [&](const std::string& held_out) {
    return Checkpointing(directory_.path(), Config(),
                         {{"prompts.train", "a"}, {"prompts.eval", held_out}});
  };
  ASSERT_TRUE(Write(with("a"), 3, learner).ok());
  EXPECT_TRUE(with("b").LoadNewest().ok());
}

TEST_F(CheckpointingTest, AFileThatIsMissingIsNamed) {
  const Learner learner(1);
  ASSERT_TRUE(Write(3, learner).ok());
  for (const std::string file :
       {"weights.safetensors", "ema.safetensors", "optimizer.safetensors"}) {
    Checkpoint checkpoint = *checkpointing_.LoadNewest();
    ASSERT_EQ(checkpoint.files.erase(file), 1u);
    Learner resumed(2);
    const absl::Status status = Restore(checkpointing_, checkpoint, resumed);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
  }
}

// The copy is what is written: the policy may move on meanwhile.
// Promise: Checkpoints have any size and take one copy.
// Promise: A checkpoint is of the step's end, whatever follows.
TEST_F(CheckpointingTest, WhatMovesAfterTheCopyIsNotInIt) {
  uint64_t step = 0;
  for (const auto moments : {rl::MomentPlace::kWithWeights, rl::MomentPlace::kHost}) {
    const Learner learner(1, moments), other(3);
    const auto before = learner.Everything();
    CheckpointCopy copy = checkpointing_.CopyWeights(*learner.policy);
    Checkpointing::AddTrainerState(*learner.trainer, 0, 1, copy);
    {
      const at::NoGradGuard no_grad;
      learner.policy->parameters().flat().add_(1);
      learner.policy->ema_parameters().flat().add_(1);
      ASSERT_TRUE(learner.trainer->LoadState(*other.trainer->State()).ok());
    }
    ASSERT_TRUE(checkpointing_.Write(StateAt(++step), std::move(copy)).ok());
    Learner resumed(2);
    const absl::Status restored = Restore(checkpointing_, *checkpointing_.LoadNewest(), resumed);
    ASSERT_TRUE(restored.ok()) << restored;
    EXPECT_TRUE(Equal(resumed.Everything(), before)) << step;
    EXPECT_TRUE(Equal(*learner.trainer->State(), *other.trainer->State())) << step;
  }
}

TEST_F(CheckpointingTest, AChangedPromptFileIsRefusedByNameAndAnUnknownOneIsNot) {
  const Learner learner(1);
  v1::RunConfig config = Config();
  config.mutable_prompts()->set_train("prompts/train.txt");
  const auto with = [&](const std::string& train) {
    return Checkpointing(directory_.path(), config, {{"prompts.train", train}});
  };
  ASSERT_TRUE(Write(Checkpointing(directory_.path(), config), 3, learner).ok());
  EXPECT_TRUE(with("a").LoadNewest().ok()) << "a checkpoint of an older version knows no hash";
  ASSERT_TRUE(Write(with("a"), 4, learner).ok());
  EXPECT_TRUE(with("a").LoadNewest().ok());
  const absl::Status refused = with("b").LoadNewest().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("prompts/train.txt"));
}

// The files take 192 MiB. They are written to memory that counts for no process.
// Promise: Checkpoints have any size and take one copy.
TEST_F(CheckpointingTest, WritingTakesAtMostATenthMoreThanOneCopy) {
  constexpr int64_t kValues = int64_t{16} << 20;
  constexpr double kBytes = 3 * 4.0 * kValues;
  const at::Tensor values = at::full({kValues}, 0.5F);
  const int64_t before = ForgetPeakMemory();
  CheckpointCopy copy;
  for (const char* name : {"adamw.first_moment", "adamw.second_moment", "old_policy"}) {
    copy.tensors["optimizer.safetensors"].flat.emplace(name, values);
  }
  const auto written = checkpointing_.Write(StateAt(3), std::move(copy));
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_GE(*written, static_cast<uint64_t>(kBytes));
  const int64_t peak = OwnMemory("VmHWM");
  EXPECT_LE(static_cast<double>(peak - before), 1.1 * kBytes) << peak << " after " << before;
  EXPECT_GE(static_cast<double>(peak - before), 0.9 * kBytes) << "the copy itself is measured";
}

// Two of the tensors are equal: their chunks are there once.
// Promise: Any process draws an evaluation with the same bytes.
TEST_F(CheckpointingTest, TensorsInChunksAreWrittenWithoutACopyAndLetGoOf) {
  constexpr int64_t kValues = int64_t{8} << 20;
  constexpr double kBytes = 3 * 4.0 * kValues;
  const model::NamedTensors tensors = {{"a", at::arange(kValues, at::kInt).view(at::kFloat)},
                                       {"b", at::arange(kValues, at::kInt).view(at::kFloat)},
                                       {"c", at::arange(kValues).to(at::kFloat)},
                                       {"scalar", at::full({}, 2.5F)}};
  CheckpointCopy copy;
  weights::Snapshot cut = weights::SnapshotMaker(FrozenSource({}, {}), weights::kSnapshotChunkBytes)
                              .Make({}, FrozenSource(tensors, {}));
  const weights::Chunk held = cut.chunks.at(cut.manifest.tensors(2).chunk_sha256(0));
  copy.chunked.emplace(kOwedWeights, std::move(cut));
  const int64_t before = ForgetPeakMemory();
  int64_t holders = 0;
  const auto written = checkpointing_.Write(StateAt(3), std::move(copy), [&] {
    holders = held.use_count();
    return absl::OkStatus();
  });
  ASSERT_TRUE(written.ok()) << written.status();
  const auto more = static_cast<double>(OwnMemory("VmHWM") - before);
  EXPECT_LE(more, 0.1 * kBytes);
  EXPECT_EQ(holders, 1) << "before the checkpoint is whole";
  const auto newest = checkpointing_.LoadNewest();
  ASSERT_TRUE(newest.ok()) << newest.status();
  const auto back = TensorsOf(*newest, kOwedWeights);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(at::equal(back->at(name).view(at::kInt), tensor.view(at::kInt))) << name;
  }
}

// An evaluation drawn with weights of another step would be a number on the wrong line.
// Promise: An owed evaluation costs no checkpoint.
TEST_F(CheckpointingTest, OwedWeightsAreThoseOfTheFirstOwedStepAloneAndOthersAreRefused) {
  const model::NamedTensors tensors = {{"a", at::arange(7).to(at::kFloat)}};
  const auto write = [&](std::vector<uint64_t> owed, bool beside) {
    RunState state = StateAt(25);
    state.owed_evaluations = std::move(owed);
    CheckpointCopy copy;
    if (beside) {
      copy.chunked.emplace(
          kOwedWeights, weights::SnapshotMaker(FrozenSource({}, {}), weights::kSnapshotChunkBytes)
                            .Make({}, FrozenSource(tensors, {})));
    }
    EXPECT_TRUE(checkpointing_.Write(std::move(state), std::move(copy)).ok());
    return *checkpointing_.LoadNewest();
  };
  const Checkpoint both = write({24, 25}, true);
  const auto first = OwedWeightsOf(both, 24);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(at::equal(first->at("a"), tensors.at("a")));
  for (const uint64_t other : {uint64_t{0}, uint64_t{23}, uint64_t{25}, uint64_t{26}}) {
    const absl::Status status = OwedWeightsOf(both, other).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << other << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("of step ", other)));
  }
  EXPECT_TRUE(absl::IsDataLoss(OwedWeightsOf(write({24}, false), 24).status()));
  EXPECT_TRUE(absl::IsDataLoss(OwedWeightsOf(write({}, true), 24).status()));
}

TEST_F(CheckpointingTest, KeepsAsManyAsTheConfigSays) {
  const Learner learner(1);
  for (const uint64_t step : {3u, 6u, 9u}) {
    ASSERT_TRUE(Write(step, learner).ok());
  }
  const std::filesystem::path kept = directory_.path() / "checkpoints";
  EXPECT_FALSE(std::filesystem::exists(kept / "step_000003"));
  EXPECT_TRUE(std::filesystem::exists(kept / "step_000006"));
  EXPECT_TRUE(std::filesystem::exists(kept / "step_000009"));
}

}  // namespace
}  // namespace oxbow::learner
