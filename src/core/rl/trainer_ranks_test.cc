// SPDX-License-Identifier: Apache-2.0
// The trainer over several ranks: who holds which groups must not show in what is learnt.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

#include "core/rl/trainer.h"
#include "tests/testing/thread_ranks.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::rl {
namespace {

constexpr int kGroups = 8;
constexpr int kSteps = 8;

flow::SamplingSpec Spec() {
  return {.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, 3),
          .sde = {true, true, true, true, true, false, false, false, false, false}};
}

// With kWeights gradients are in pieces, too, and weights offloaded; with kShared ranks have them
// in one piece of memory.
enum class Shards { kNothing, kMoments, kGradients, kWeights, kShared };

bool OnHost(Shards shards) { return shards == Shards::kWeights || shards == Shards::kShared; }

TrainerOptions Options(bool deterministic, Shards shards = Shards::kNothing) {
  return {.sampling = Spec(),
          .run_seed = 3,
          .updates = 2,
          .deterministic = deterministic,
          .shard_optimizer = shards != Shards::kNothing,
          .shard_gradients = shards == Shards::kGradients || OnHost(shards),
          .clip_range = 2e-3,
          .advantage = {.std = AdvantageStd::kGlobal},
          .kl = {.weight = 1e-2},
          .adamw = {.learning_rate = 1e-3}};
}

// A step's groups: fresh ones, a mixed one, one whose samples are all alike, one with a failure.
std::vector<Group> Rollout(const model::VelocityModel& model, uint64_t step, uint64_t version) {
  std::vector<Group> groups;
  for (uint64_t g = 0; g < kGroups; ++g) {
    groups.push_back(ToyGroup(Spec(), model, step * 100 + g, 6, version));
  }
  Trajectory& replayed = groups[1].trajectories[5];
  replayed.replayed = true;
  replayed.entry_id = EntryId(step + 1);
  replayed.kept_steps = 4;
  for (size_t i = 4; i < replayed.sde.size(); ++i) replayed.sde[i] = false;
  for (size_t i = 0; i < 4; ++i) {
    replayed.behaviour_version[i] = 999;
    replayed.log_prob[i] += 0.01F;
  }
  for (Trajectory& trajectory : groups[6].trajectories) trajectory.reward = 1;
  groups[3].trajectories[0].reward_failed = true;
  return groups;
}

// The groups as rank `rank` has them: latents of other ranks' groups have a shape and no numbers.
std::vector<Group> SeenBy(std::vector<Group> groups, int rank, int ranks) {
  const std::vector<int> holders = HoldersOf(groups, ranks);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (holders[g] == rank) continue;
    for (Trajectory& trajectory : groups[g].trajectories)
      trajectory.latents = trajectory.latents.to(at::kMeta);
  }
  return groups;
}

struct Outcome {
  at::Tensor weights;
  at::Tensor average;
  std::vector<std::map<std::string, double>> metrics;
  std::vector<EntryId> used;
};

// kSteps steps over `ranks` ranks; what each of them ended with. The last rank interrupts each step
// of `interrupted` once, at this question; then it is trained again.
std::vector<Outcome> Train(int ranks, bool deterministic, Shards shards = Shards::kNothing,
                           const std::map<uint64_t, int>& interrupted = {}, bool recompute = false,
                           int rows_per_pass = 0, bool last_has_all_but_one = false) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  parallel::ThreadWorld(ranks).Run([&](parallel::Ranks& world) {
    ToyPolicy policy(1, model::OldPolicy::kNone, /*on_host=*/OnHost(shards));
    TrainerOptions options = Options(deterministic, shards);
    options.rows_per_pass = rows_per_pass;
    options.recompute_on_policy = recompute;
    Trainer trainer(options, policy, world);
    if (shards == Shards::kShared) {
      ASSERT_TRUE(trainer.ShareHostMemory().ok());
      for (const model::ParameterSet* set : {&policy.parameters(), &policy.ema_parameters()}) {
        EXPECT_EQ(set->share().count, ranks);
        EXPECT_EQ(set->share().place, world.rank());
      }
    }
    Outcome& mine = outcomes[static_cast<size_t>(world.rank())];
    for (uint64_t step = 0; step < kSteps; ++step) {
      std::vector<Group> made = Rollout(policy.current(), step, trainer.version().value);
      for (Group& group : made) {  // A worker that rounds otherwise than the ranks.
        if (recompute) group.trajectories[0].log_prob[1] += 1e-3F;
      }
      for (size_t g = 0; last_has_all_but_one && g < made.size(); ++g) {
        made[g].holder = g == 0 ? 0 : ranks - 1;
      }
      const auto groups = SeenBy(std::move(made), world.rank(), world.size());
      if (interrupted.contains(step)) {
        int asked = 0;
        const auto stop = [&] {
          return world.rank() + 1 == world.size() && ++asked == interrupted.at(step);
        };
        EXPECT_EQ(trainer.Step(LearnerStep(step), groups, stop).status().code(),
                  absl::StatusCode::kCancelled);
      }
      const auto result = trainer.Step(LearnerStep(step), groups);
      ASSERT_TRUE(result.ok()) << result.status();
      mine.metrics.push_back(result->metrics);
      mine.used.insert(mine.used.end(), result->used.begin(), result->used.end());
    }
    mine.weights = policy.parameters().flat().detach().clone();
    mine.average = policy.ema_parameters().flat().detach().clone();
  });
  return outcomes;
}

class TrainerRanksTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, TrainerRanksTest, ::testing::Values(2, 3, 4));

// Promise: The number of ranks changes no number.
// Promise: Gradients in pieces train the same network.
// Promise: Where weights are changes no bit.
TEST_P(TrainerRanksTest, DeterministicTrainingHasTheSameBitsForEveryNumberOfRanks) {
  const Outcome alone = Train(1, true)[0];
  constexpr std::array<Shards, 5> kShards = {Shards::kNothing, Shards::kNothing, Shards::kMoments,
                                             Shards::kGradients, Shards::kWeights};
  for (const Outcome& outcome :
       Train(GetParam(), true, kShards.at(static_cast<size_t>(GetParam())))) {
    EXPECT_TRUE(at::equal(outcome.weights, alone.weights));
    EXPECT_TRUE(at::equal(outcome.average, alone.average));
    EXPECT_EQ(outcome.used, alone.used);
    for (size_t step = 0; step < alone.metrics.size(); ++step) {
      for (const auto& [name, value] : alone.metrics[step]) {
        EXPECT_EQ(outcome.metrics[step].at(name), value) << name << " at step " << step;
      }
    }
  }
}

// A rank has one group, another the others, and those between them none.
// Promise: The number of ranks changes no number.
TEST_P(TrainerRanksTest, UnequalSharesHaveTheSameBits) {
  const Outcome alone = Train(1, true)[0];
  for (const Shards shards : {Shards::kNothing, Shards::kGradients}) {
    for (const Outcome& outcome : Train(GetParam(), true, shards, {}, false, 0, true)) {
      EXPECT_TRUE(at::equal(outcome.weights, alone.weights));
      EXPECT_EQ(outcome.used, alone.used);
    }
    for (const Outcome& outcome : Train(GetParam(), false, shards, {}, false, 7, true)) {
      EXPECT_LT((outcome.weights - alone.weights).abs().max().item<double>(), 1e-5);
    }
  }
}

TEST_P(TrainerRanksTest, RecomputedCentresHaveTheSameBitsForEveryNumberOfRanks) {
  const Outcome alone = Train(1, true, Shards::kNothing, {}, /*recompute=*/true)[0];
  EXPECT_NEAR(alone.metrics[0].at("train/onpolicy_ratio_err"), 1e-3, 1e-4);
  for (const Outcome& outcome : Train(GetParam(), true, Shards::kMoments, {}, /*recompute=*/true)) {
    EXPECT_TRUE(at::equal(outcome.weights, alone.weights));
    for (const char* name : {"train/onpolicy_ratio_err", "train/loss", "train/ratio_max"}) {
      EXPECT_EQ(outcome.metrics[0].at(name), alone.metrics[0].at(name)) << name;
    }
  }
}

// Each writes its part of the weights and of the average, and reads what the others wrote.
// Promise: Where weights are changes no bit.
TEST_P(TrainerRanksTest, RanksThatShareTheirMemoryTrainWithTheSameBits) {
  const Outcome alone = Train(1, true)[0];
  for (const Outcome& outcome : Train(GetParam(), true, Shards::kShared, {{4, 2}})) {
    EXPECT_TRUE(at::equal(outcome.weights, alone.weights));
    EXPECT_TRUE(at::equal(outcome.average, alone.average));
  }
  const Outcome loose = Train(GetParam(), false, Shards::kWeights)[0];
  for (const Outcome& outcome : Train(GetParam(), false, Shards::kShared)) {
    EXPECT_TRUE(at::equal(outcome.weights, loose.weights));
    EXPECT_TRUE(at::equal(outcome.average, loose.average));
  }
}

// Promise: A stop signal is answered by a checkpoint.
TEST_P(TrainerRanksTest, AnInterruptionOfOneRankStopsAllAndChangesNoBit) {
  const Outcome alone = Train(1, true)[0];
  for (const Outcome& outcome :
       Train(GetParam(), true, Shards::kGradients, {{1, 1}, {4, 2}, {7, 3}})) {
    EXPECT_TRUE(at::equal(outcome.weights, alone.weights));
    EXPECT_TRUE(at::equal(outcome.average, alone.average));
  }
}

// Promise: The number of ranks changes no number.
TEST_P(TrainerRanksTest, TrainingAgreesWithOneRankWithinReductionError) {
  const Outcome alone = Train(1, false)[0];
  for (const Shards shards :
       {Shards::kNothing, Shards::kMoments, Shards::kGradients, Shards::kWeights}) {
    const std::vector<Outcome> outcomes = Train(GetParam(), false, shards);
    for (const Outcome& outcome : outcomes) {
      EXPECT_LT((outcome.weights - alone.weights).abs().max().item<double>(), 1e-5);
      EXPECT_TRUE(at::equal(outcome.weights, outcomes[0].weights)) << "ranks drifted apart";
      for (size_t step = 0; step < alone.metrics.size(); ++step) {
        for (const char* name : {"train/loss", "train/reward_mean", "train/iw_mean"}) {
          EXPECT_NEAR(outcome.metrics[step].at(name), alone.metrics[step].at(name), 1e-5)
              << name << " at step " << step;
        }
      }
    }
  }
}

// Ranks have other numbers of passes, and take part in each other's.
// Promise: Gradients in pieces train the same network.
TEST_P(TrainerRanksTest, GradientsInPiecesAreThoseOfSmallPassesToo) {
  const Outcome alone = Train(1, false)[0];
  for (const Outcome& outcome : Train(GetParam(), false, Shards::kGradients, {}, false, 7)) {
    EXPECT_LT((outcome.weights - alone.weights).abs().max().item<double>(), 1e-5);
  }
  const Outcome fixed = Train(1, true, Shards::kNothing, {}, false, 7)[0];
  for (const Shards shards : {Shards::kGradients, Shards::kWeights}) {
    for (const Outcome& outcome : Train(GetParam(), true, shards, {}, false, 7)) {
      EXPECT_TRUE(at::equal(outcome.weights, fixed.weights));
    }
  }
}

// Sharded moments, gathered on four ranks and loaded on two.
// Promise: The number of ranks changes no number.
TEST(TrainerStateTest, AStateGoesOnWithAnotherNumberOfRanks) {
  const Outcome whole = Train(1, true)[0];
  std::map<std::string, at::Tensor> saved;
  at::Tensor weights;
  at::Tensor average;
  const auto run = [](Trainer& trainer, ToyPolicy& policy, parallel::Ranks& world, uint64_t begin,
                      uint64_t end) {
    for (uint64_t step = begin; step < end; ++step) {
      const auto groups = SeenBy(Rollout(policy.current(), step, trainer.version().value),
                                 world.rank(), world.size());
      ASSERT_TRUE(trainer.Step(LearnerStep(step), groups).ok());
    }
  };
  parallel::ThreadWorld(4).Run([&](parallel::Ranks& world) {
    ToyPolicy policy;
    Trainer trainer(Options(true, Shards::kMoments), policy, world);
    run(trainer, policy, world, 0, 4);
    const auto state = trainer.State();
    ASSERT_TRUE(state.ok()) << state.status();
    if (world.rank() != 0) return;
    saved = *state;
    weights = policy.parameters().flat().detach().clone();
    average = policy.ema_parameters().flat().detach().clone();
  });
  parallel::ThreadWorld(2).Run([&](parallel::Ranks& world) {
    ToyPolicy policy;
    Trainer trainer(Options(true, Shards::kMoments), policy, world);
    {
      const at::NoGradGuard no_grad;
      policy.parameters().flat().copy_(weights);
      policy.ema_parameters().flat().copy_(average);
    }
    ASSERT_TRUE(trainer.LoadState(saved).ok());
    run(trainer, policy, world, 4, kSteps);
    EXPECT_TRUE(at::equal(policy.parameters().flat(), whole.weights)) << "rank " << world.rank();
    EXPECT_TRUE(at::equal(policy.ema_parameters().flat(), whole.average));
  });
}

// Promise: Ranks do not drift apart. The weights of all ranks are compared bit for bit before the
// first step of every start, and every `learner.drift_check_every` steps. A difference ends the
// run. The message names the first tensor and which rank holds what.
TEST(TrainerAgreementTest, RanksThatDriftedApartStopAndNameTheTensor) {
  parallel::ThreadWorld(2).Run([&](parallel::Ranks& world) {
    TrainerOptions options = Options(false);
    options.drift_check_every = 2;
    ToyPolicy policy;
    Trainer trainer(options, policy, world);
    const auto step = [&](uint64_t number) {
      const auto groups = SeenBy(Rollout(policy.reference(), number, trainer.version().value),
                                 world.rank(), world.size());
      return trainer.Step(LearnerStep(number), groups).status();
    };
    ASSERT_TRUE(step(0).ok());
    if (world.rank() == 1) {
      const at::NoGradGuard no_grad;
      policy.parameters().tensors().at("prompt").flatten()[0] += 1e-6F;
    }
    EXPECT_TRUE(step(1).ok()) << "not compared at this step";
    const absl::Status drifted = step(2);
    EXPECT_EQ(drifted.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(std::string(drifted.message()).find("rank 1"), std::string::npos) << drifted;
  });
}

// Rank 0 alone has read the checkpoint; moments are sharded.
// Promise: Where moments are changes no bit.
TEST(TrainerStateTest, AllTakeTheStateOfRankZero) {
  std::map<std::string, at::Tensor> saved;
  at::Tensor weights;
  parallel::ThreadWorld(1).Run([&](parallel::Ranks& world) {
    ToyPolicy policy;
    Trainer trainer(Options(true), policy, world);
    ASSERT_TRUE(trainer.Step(LearnerStep(0), Rollout(policy.current(), 0, 0)).ok());
    saved = *trainer.State();
    weights = policy.parameters().flat().detach().clone();
  });
  parallel::ThreadWorld(3).Run([&](parallel::Ranks& world) {
    ToyPolicy policy;
    TrainerOptions options = Options(true, Shards::kMoments);
    if (world.rank() == 1) options.moments = MomentPlace::kHost;
    Trainer trainer(options, policy, world);
    if (world.rank() == 0) {
      const at::NoGradGuard no_grad;
      policy.parameters().flat().copy_(weights);
    }
    const bool leads = world.rank() == 0;
    ASSERT_TRUE(trainer.TakeStateOfRankZero(leads ? saved : decltype(saved)()).ok());
    EXPECT_EQ(trainer.version(), PolicyVersion(2)) << "rank " << world.rank();
    EXPECT_TRUE(at::equal(policy.parameters().flat(), weights)) << "rank " << world.rank();
    const auto state = trainer.State();
    ASSERT_TRUE(state.ok()) << state.status();
    for (const auto& [name, tensor] : saved)
      EXPECT_TRUE(at::equal(state->at(name), tensor)) << name;
  });
}

}  // namespace
}  // namespace oxbow::rl
