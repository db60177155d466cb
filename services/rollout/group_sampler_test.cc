// SPDX-License-Identifier: Apache-2.0
// The bits of a group depend on its own identity and the weights, never on the other groups of its
// batch.
#include "services/rollout/group_sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/flow/sampler.h"
#include "core/flow/schedule.h"
#include "core/flow/window.h"
#include "core/model/image_sampler.h"
#include "core/reward/likeness.h"
#include "tests/testing/tiny_model.h"

namespace oxbow::rollout {
namespace {

constexpr int kSteps = 5;
constexpr double kDuplicate = 0.2;
constexpr PolicyVersion kVersion{7};

RunSpec Spec(at::ScalarType storage = at::kFloat, bool sde_tail = false) {
  RunSpec spec;
  spec.run_seed = 11;
  spec.sampling.sigmas = flow::SigmaGrid(flow::ScheduleKind::kLinspace, kSteps, 3);
  spec.sampling.sde = {true, true, true, false, false};
  spec.storage = storage;
  spec.sde_tail = sde_tail;
  spec.latent_shape = kTinyLatent;
  spec.duplicate_radius = kDuplicate;
  return spec;
}

GroupTask Task(uint64_t group, uint32_t size) {
  return {GroupId(group), size, TinyConditioning(group), std::nullopt};
}

GroupTask MixedTask(uint64_t group, uint32_t size, int kept_steps) {
  GroupTask task = Task(group, size);
  task.head = rl::Trajectory{.latents = TinyNoise(5, group, kTinyLatent).unsqueeze(0),
                             .first_latent = kept_steps,
                             .replayed = true,
                             .entry_id = EntryId(99),
                             .kept_steps = kept_steps,
                             .stored_reward = 0.5};
  return task;
}

class GroupSamplerTest : public ::testing::Test {
 protected:
  std::vector<SampledGroup> Sample(const RunSpec& spec, const std::vector<GroupTask>& tasks) {
    return SampleGroups(
        spec,
        [this] {
          return VersionedNetwork{policy_->current(), kVersion};
        },
        *decoder_, tasks);
  }

  static void ExpectSameBits(const SampledGroup& a, const SampledGroup& b) {
    ASSERT_EQ(a.trajectories.size(), b.trajectories.size());
    for (size_t i = 0; i < a.trajectories.size(); ++i) {
      EXPECT_EQ(a.trajectories[i].index, b.trajectories[i].index);
      EXPECT_EQ(a.trajectories[i].log_prob, b.trajectories[i].log_prob);
      EXPECT_EQ(a.media[i], b.media[i]);
      ASSERT_EQ(a.trajectories[i].latents.defined(), b.trajectories[i].latents.defined());
      if (a.trajectories[i].latents.defined()) {
        EXPECT_TRUE(at::equal(a.trajectories[i].latents, b.trajectories[i].latents));
      }
    }
  }

  const std::unique_ptr<model::Policy> policy_ = TinyPolicy(3);
  const std::unique_ptr<model::ImageDecoder> decoder_ = model::MakePixelDecoder();
};

// Promise: The worker that samples does not matter.
TEST_F(GroupSamplerTest, TheSameLeaseGivesTheSameBitsInAnyCompany) {
  for (const bool sde_tail : {false, true}) {
    const RunSpec spec = Spec(at::kFloat, sde_tail);
    const std::vector<SampledGroup> alone = Sample(spec, {Task(1, 3)});
    const std::vector<SampledGroup> mixed_alone = Sample(spec, {MixedTask(2, 3, 2)});
    const std::vector<SampledGroup> together = Sample(
        spec, {MixedTask(4, 2, 2), MixedTask(2, 3, 2), Task(3, 5), Task(1, 3), MixedTask(5, 4, 3)});
    ExpectSameBits(alone[0], together[3]);
    ExpectSameBits(mixed_alone[0], together[1]);
    EXPECT_FALSE(at::equal(alone[0].trajectories[0].latents, alone[0].trajectories[1].latents));
  }
}

TEST_F(GroupSamplerTest, StoredLatentsScoreToTheSameLogProbsInAnotherBatch) {
  for (const at::ScalarType storage : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const RunSpec spec = Spec(storage);
    const GroupTask task = Task(1, 3);
    const SampledGroup group = Sample(spec, {task, Task(2, 4)})[0];
    for (const rl::Trajectory& sample : group.trajectories) {
      ASSERT_EQ(sample.latents.size(0), 4);
      EXPECT_TRUE(at::equal(sample.latents, sample.latents.to(storage).to(at::kFloat)));
      for (int64_t step = 0; step < 3; ++step) {
        const at::Tensor x = sample.latents[step].unsqueeze(0);
        const at::Tensor sigma =
            at::full({1}, spec.sampling.sigmas[static_cast<size_t>(step)], at::kFloat);
        const at::Tensor v = policy_->current().Velocity(x, sigma, task.conditioning);
        const at::Tensor log_prob = flow::ScoreTransition(spec.sampling, static_cast<int>(step), x,
                                                          sample.latents[step + 1].unsqueeze(0), v);
        EXPECT_EQ(log_prob.item<float>(), sample.log_prob[static_cast<size_t>(step)]);
      }
    }
  }
}

// Each step has the log-prob and the version of the weights that took it, whichever they were.
// Promise: A step belongs to the weights that took it. With `off_policy.in_flight_updates` new
// weights take over between two denoising steps, and each step has the log-prob and the version of
// its own weights. The learner's ratio of a step of the current policy is 1 to the bit. Versions
// that fall, or change where they may not, are refused.
TEST_F(GroupSamplerTest, NewWeightsTakeOverBetweenTwoSteps) {
  const std::unique_ptr<model::Policy> newer = TinyPolicy(4);
  for (const int takeover : {0, 1, 2, 3, 4, kSteps}) {
    SCOPED_TRACE(takeover);
    RunSpec spec = Spec();
    int step = 0;
    const NetworkOfStep network = [&] {
      const bool before = step++ < takeover;
      return VersionedNetwork{before ? policy_->current() : newer->current(),
                              PolicyVersion(before ? 7 : 9)};
    };
    const GroupTask task = Task(1, 3);
    const SampledGroup group = SampleGroups(spec, network, *decoder_, {task})[0];
    EXPECT_EQ(step, kSteps);
    for (const rl::Trajectory& sample : group.trajectories) {
      for (int i = 0; i < kSteps; ++i) {
        const auto at_step = static_cast<size_t>(i);
        EXPECT_EQ(sample.behaviour_version[at_step], i < takeover ? 7u : 9u);
        if (!spec.sampling.sde[at_step]) continue;
        const model::Policy& drew = i < takeover ? *policy_ : *newer;
        const at::Tensor x = sample.latents[i].unsqueeze(0);
        const at::Tensor sigma = at::full({1}, spec.sampling.sigmas[at_step], at::kFloat);
        const at::Tensor log_prob =
            flow::ScoreTransition(spec.sampling, i, x, sample.latents[i + 1].unsqueeze(0),
                                  drew.current().Velocity(x, sigma, task.conditioning));
        EXPECT_EQ(log_prob.item<float>(), sample.log_prob[at_step]) << "step " << i;
      }
    }
  }
}

// The batch of fresh members and that of tails each have steps of their own.
// Promise: A step belongs to the weights that took it.
TEST_F(GroupSamplerTest, ATailHasTheVersionsOfItsOwnSteps) {
  uint64_t version = 0;
  const NetworkOfStep network = [&] {
    return VersionedNetwork{policy_->current(), PolicyVersion(version++)};
  };
  const SampledGroup group = SampleGroups(Spec(), network, *decoder_, {MixedTask(2, 2, 2)})[0];
  EXPECT_EQ(group.trajectories[0].behaviour_version, (std::vector<uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(group.trajectories[1].behaviour_version, (std::vector<uint64_t>{5, 5, 5, 6, 7}));
}

GroupTask WindowTask(uint64_t group, uint32_t size, const std::vector<int>& window) {
  GroupTask task = Task(group, size);
  task.sde = flow::StepFlags(window, kSteps);
  return task;
}

// Windows travel with leases: leases of two learner steps may wait at the same time.
TEST_F(GroupSamplerTest, WindowsOfOneBatchDoNotTouchEachOther) {
  const RunSpec spec = Spec();
  const std::vector<GroupTask> tasks = {WindowTask(1, 3, {1}), WindowTask(2, 2, {0, 1, 2}),
                                        WindowTask(3, 2, {1}), Task(4, 2)};
  const std::vector<SampledGroup> together = Sample(spec, tasks);
  for (size_t i = 0; i < tasks.size(); ++i)
    ExpectSameBits(Sample(spec, {tasks[i]})[0], together[i]);
  for (const rl::Trajectory& sample : together[0].trajectories) {
    EXPECT_EQ(sample.sde, flow::StepFlags({1}, kSteps));
    EXPECT_EQ(sample.log_prob[0], 0);
    EXPECT_NE(sample.log_prob[1], 0);
  }
  EXPECT_EQ(together[3].trajectories[0].sde, spec.sampling.sde);
}

// Deterministic steps need no latents: the worker sends exactly the latents of the window.
TEST_F(GroupSamplerTest, OnlyTheLatentsOfTheWindowAreSent) {
  RunSpec spec = Spec();
  const GroupTask task = WindowTask(1, 2, {1, 2});
  const SampledGroup group = Sample(spec, {task})[0];
  spec.sampling.sde = task.sde;
  for (const rl::Trajectory& sample : group.trajectories) {
    EXPECT_EQ(sample.first_latent, 1);
    ASSERT_EQ(sample.latents.size(0), 3);
    for (const int step : {1, 2}) {
      const at::Tensor x = sample.latents[step - 1].unsqueeze(0);
      const at::Tensor sigma =
          at::full({1}, spec.sampling.sigmas[static_cast<size_t>(step)], at::kFloat);
      const at::Tensor v = policy_->current().Velocity(x, sigma, task.conditioning);
      EXPECT_EQ(flow::ScoreTransition(spec.sampling, step, x, sample.latents[step].unsqueeze(0), v)
                    .item<float>(),
                sample.log_prob[static_cast<size_t>(step)]);
    }
  }
}

TEST_F(GroupSamplerTest, TheFinalLatentAloneIsSentWhereTrainingWantsNoTransition) {
  RunSpec spec = Spec();
  const SampledGroup all = Sample(spec, {Task(1, 2)})[0];
  spec.sent = flow::SentLatents::kFinal;
  const SampledGroup last = Sample(spec, {Task(1, 2)})[0];
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(last.trajectories[i].first_latent, kSteps);
    ASSERT_EQ(last.trajectories[i].latents.size(0), 1);
    EXPECT_EQ(last.media[i], all.media[i]);
    EXPECT_EQ(decoder_->Decode(last.trajectories[i].latents).numel(),
              static_cast<int64_t>(last.media[i].front().pixels.size()));
  }
}

// An anchor noises final images again, besides the transitions that a policy gradient trains.
// Promise: An anchor holds every method.
TEST_F(GroupSamplerTest, TransitionsAndTheFinalLatentAreSentWhereTrainingWantsBoth) {
  RunSpec spec = Spec();
  const GroupTask task = MixedTask(2, 3, /*kept_steps=*/1);
  const SampledGroup bare = Sample(spec, {task})[0];
  spec.sent = flow::SentLatents::kToTheEnd;
  const SampledGroup whole = Sample(spec, {task})[0];
  for (size_t i = 0; i < 3; ++i) {
    const rl::Trajectory& sample = whole.trajectories[i];
    EXPECT_EQ(sample.first_latent, sample.replayed ? 1 : bare.trajectories[i].first_latent);
    ASSERT_EQ(sample.first_latent + sample.latents.size(0), kSteps + 1);
    EXPECT_EQ(sample.log_prob, bare.trajectories[i].log_prob);
    EXPECT_EQ(model::DecodeFrames(*decoder_, sample.latents[-1].unsqueeze(0))[0], whole.media[i]);
    EXPECT_EQ(whole.media[i], bare.media[i]);
    if (sample.replayed) {
      EXPECT_TRUE(at::equal(sample.latents[0], task.head->latents[0]));
    }
  }
}

// Compressed behind the window: what is sent is what a whole path would send, and the picture is
// that of the shorter path. A tail is compressed, too.
// Promise: Compressed steps change no trained transition.
TEST_F(GroupSamplerTest, CompressedStepsChangeThePictureAndNothingThatIsTrained) {
  for (const bool sde_tail : {false, true}) {
    RunSpec spec = Spec(at::kHalf, sde_tail);
    GroupTask task = MixedTask(2, 3, /*kept_steps=*/1);
    task.sde = flow::StepFlags({0, 1}, kSteps);
    const SampledGroup whole = Sample(spec, {task})[0];
    spec.sampling.compression = {.share = .5, .shift = 3};
    const SampledGroup group = Sample(spec, {task})[0];
    spec.sent = flow::SentLatents::kFinal;
    const SampledGroup last = Sample(spec, {task})[0];
    for (size_t i = 0; i < 3; ++i) {
      const rl::Trajectory& sample = group.trajectories[i];
      EXPECT_EQ(sample.sde, whole.trajectories[i].sde);
      EXPECT_EQ(sample.log_prob, whole.trajectories[i].log_prob);
      EXPECT_EQ(sample.log_prob.size(), static_cast<size_t>(kSteps));
      EXPECT_EQ(sample.behaviour_version, whole.trajectories[i].behaviour_version);
      EXPECT_EQ(sample.first_latent, whole.trajectories[i].first_latent);
      ASSERT_EQ(sample.latents.defined(), whole.trajectories[i].latents.defined());
      if (sample.latents.defined()) {
        EXPECT_TRUE(at::equal(sample.latents, whole.trajectories[i].latents));
      }
      EXPECT_NE(group.media[i], whole.media[i]);
      EXPECT_EQ(last.media[i], group.media[i]);
      const rl::Trajectory& end = last.trajectories[i];
      if (end.replayed) continue;
      EXPECT_EQ(end.first_latent, kSteps) << "the learner's own count";
      ASSERT_EQ(end.latents.size(0), 1);
      EXPECT_EQ(model::DecodeFrames(*decoder_, end.latents)[0], last.media[i]);
    }
  }
}

TEST_F(GroupSamplerTest, CompressedGroupsHaveTheSameBitsInAnyCompany) {
  RunSpec spec = Spec();
  spec.sampling.compression = {.share = .4, .shift = 3, .carry = true};
  const std::vector<GroupTask> tasks = {WindowTask(1, 3, {1}), WindowTask(2, 2, {0, 1, 2}),
                                        WindowTask(3, 2, {0}), MixedTask(4, 3, 1)};
  const std::vector<SampledGroup> together = Sample(spec, tasks);
  for (size_t i = 0; i < tasks.size(); ++i)
    ExpectSameBits(Sample(spec, {tasks[i]})[0], together[i]);
}

// The head keeps the steps of its own window; the tail has the later steps of the learner step's
// window.
TEST_F(GroupSamplerTest, ATailIsStochasticWhereTheStepsWindowGoesOn) {
  const RunSpec spec = Spec(at::kFloat, /*sde_tail=*/true);
  GroupTask task = MixedTask(2, 3, /*kept_steps=*/1);
  task.sde = flow::StepFlags({0, 2}, kSteps);
  const rl::Trajectory tail = Sample(spec, {task})[0].trajectories[2];
  EXPECT_EQ(tail.sde, flow::StepFlags({2}, kSteps));
  EXPECT_EQ(tail.first_latent, 1);
  ASSERT_EQ(tail.latents.size(0), 3);  // x_1 .. x_3
  EXPECT_TRUE(at::equal(tail.latents[0], task.head->latents[0]));
  task.sde = flow::StepFlags({0}, kSteps);
  EXPECT_FALSE(Sample(spec, {task})[0].trajectories[2].latents.defined());
}

TEST_F(GroupSamplerTest, TheLastMemberOfAMixedGroupIsTheRegeneratedHead) {
  for (const bool sde_tail : {false, true}) {
    const GroupTask task = MixedTask(2, 3, 2);
    SampledGroup group = Sample(Spec(at::kFloat, sde_tail), {task})[0];
    CompareSamples(kDuplicate, group);
    ASSERT_EQ(group.trajectories.size(), 3u);
    EXPECT_EQ(group.media.size(), 3u);
    for (uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(group.trajectories[i].index, i);
      EXPECT_EQ(group.trajectories[i].replayed, i == 2);
    }
    const rl::Trajectory& head = group.trajectories[2];
    const std::vector<reward::Likeness> likeness = reward::LikenessOf(group.media, kDuplicate);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(group.trajectories[i].duplicate_share, likeness[i].duplicate_share);
      EXPECT_EQ(group.trajectories[i].group_distance, likeness[i].mean_distance);
      EXPECT_GT(likeness[i].mean_distance, 0);
    }
    EXPECT_EQ(head.entry_id, EntryId(99));
    EXPECT_EQ(head.kept_steps, 2);
    EXPECT_EQ(head.first_latent, 2);
    EXPECT_EQ(head.stored_reward, 0.5);
    EXPECT_EQ(head.sde, (std::vector<bool>{false, false, sde_tail, false, false}));
    EXPECT_EQ(head.log_prob[2] != 0, sde_tail);
    EXPECT_EQ(head.behaviour_version[2], kVersion.value);
    ASSERT_EQ(head.latents.defined(), sde_tail);
    if (sde_tail) {
      ASSERT_EQ(head.latents.size(0), 2);
      EXPECT_TRUE(at::equal(head.latents[0], task.head->latents[0]));
    }
  }
}

// x_0 of every member; it is sent because the window begins with step 0.
std::vector<at::Tensor> StartsOf(const SampledGroup& group) {
  std::vector<at::Tensor> starts;
  for (const rl::Trajectory& sample : group.trajectories) {
    if (!sample.replayed) starts.push_back(sample.latents[0]);
  }
  return starts;
}

// Promise: Reuse beyond a drawn head keeps its bounds.
TEST_F(GroupSamplerTest, BranchesGoOnFromOneHeadEachInItsOwnWay) {
  RunSpec spec = Spec(at::kFloat, /*sde_tail=*/true);
  const SampledGroup single = Sample(spec, {MixedTask(2, 5, 2)})[0];
  spec.branches = 3;
  const SampledGroup group = Sample(spec, {MixedTask(2, 5, 2)})[0];
  ASSERT_EQ(group.trajectories.size(), 5u);
  for (uint32_t i = 0; i < 5; ++i) {
    const rl::Trajectory& sample = group.trajectories[i];
    EXPECT_EQ(sample.index, i);
    EXPECT_EQ(sample.replayed, i >= 2) << i;
    if (i < 2) {
      EXPECT_EQ(group.media[i], single.media[i]) << "fresh members stay as they were";
      continue;
    }
    EXPECT_EQ(sample.entry_id, EntryId(99));
    EXPECT_EQ(sample.first_latent, 2);
    EXPECT_TRUE(at::equal(sample.latents[0], group.trajectories[2].latents[0])) << "the same head";
    if (i > 2) {
      EXPECT_FALSE(at::equal(sample.latents[1], group.trajectories[2].latents[1])) << i;
    }
  }
  EXPECT_EQ(group.media[4], single.media[4]) << "the last one is what it is alone";
}

TEST_F(GroupSamplerTest, ASharedStartIsTheGroupsOwnAndItsMembersPartAfterIt) {
  RunSpec spec = Spec();
  const SampledGroup apart = Sample(spec, {Task(1, 3)})[0];
  spec.shared_start = true;
  const std::vector<SampledGroup> shared = Sample(spec, {Task(1, 3), Task(2, 3)});
  const std::vector<at::Tensor> first = StartsOf(shared[0]), second = StartsOf(shared[1]);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(first[i], first[0])) << i;
    EXPECT_TRUE(at::equal(second[i], second[0])) << i;
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(
          at::equal(shared[0].trajectories[i].latents[1], shared[0].trajectories[j].latents[1]));
    }
  }
  EXPECT_FALSE(at::equal(first[0], second[0]));
  // The first member is unchanged: it does not depend on the batch.
  EXPECT_TRUE(at::equal(shared[0].trajectories[0].latents, apart.trajectories[0].latents));
  ExpectSameBits(Sample(spec, {Task(2, 3)})[0], shared[1]);
}

// One shared start and one stochastic step k: a trunk without noise and a branch for each member,
// as TempFlow-GRPO draws them. All members are equal until x_k; only step k separates them.
TEST_F(GroupSamplerTest, ASharedStartAndOneStochasticStepAreBranchesOfOneTrunk) {
  RunSpec spec = Spec();
  spec.shared_start = true;
  const at::Tensor start =
      flow::DrawStarts({{.run_seed = spec.run_seed, .group = 1, .sample = 0}}, spec.latent_shape);
  for (const int branch : {0, 1, 2}) {
    const GroupTask task = WindowTask(1, 4, {branch});
    const SampledGroup group = Sample(spec, {task, WindowTask(2, 3, {branch})})[0];
    flow::SamplingSpec trunk = spec.sampling;
    trunk.sde.assign(kSteps, false);
    const flow::Paths ode = flow::ContinuePaths(
        trunk, {{}}, start, 0, at::kFloat, [&](const at::Tensor& x, const at::Tensor& sigma) {
          return policy_->current().Velocity(x, sigma, task.conditioning);
        });
    for (size_t i = 0; i < group.trajectories.size(); ++i) {
      const rl::Trajectory& sample = group.trajectories[i];
      ASSERT_EQ(sample.first_latent, branch);
      ASSERT_EQ(sample.latents.size(0), 2);  // x_k and x_{k+1}.
      EXPECT_TRUE(at::equal(sample.latents[0], ode.latents[branch][0])) << branch << " " << i;
      for (size_t j = 0; j < i; ++j) {
        EXPECT_FALSE(at::equal(sample.latents[1], group.trajectories[j].latents[1])) << branch;
        EXPECT_NE(group.media[i], group.media[j]) << branch;
      }
      // The rest of the path is an ODE: the image is a function of x_{k+1}.
      const flow::Paths rest =
          flow::ContinuePaths(trunk, {{}}, sample.latents[1].unsqueeze(0), branch + 1, at::kFloat,
                              [&](const at::Tensor& x, const at::Tensor& sigma) {
                                return policy_->current().Velocity(x, sigma, task.conditioning);
                              });
      const at::Tensor image = decoder_->Decode(rest.latents[rest.latents.size(0) - 1]);
      EXPECT_EQ(model::FramesOf(image, 0), group.media[i]) << branch << " " << i;
    }
  }
}

TEST_F(GroupSamplerTest, TheFreshMembersOfAMixedGroupShareAStartAndTheHeadKeepsItsOwn) {
  RunSpec spec = Spec(at::kFloat, /*sde_tail=*/true);
  const SampledGroup apart = Sample(spec, {MixedTask(2, 4, 1)})[0];
  spec.shared_start = true;
  const SampledGroup shared = Sample(spec, {MixedTask(2, 4, 1)})[0];
  const std::vector<at::Tensor> starts = StartsOf(shared);
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_TRUE(at::equal(starts[0], starts[1]) && at::equal(starts[0], starts[2]));
  EXPECT_TRUE(at::equal(shared.trajectories[3].latents, apart.trajectories[3].latents));
  EXPECT_EQ(shared.media[3], apart.media[3]);
}

// A spec whose groups are trees of 4: x_1 and x_2 are nodes of two samples each.
RunSpec TreeSpec(at::ScalarType storage = at::kFloat) {
  RunSpec spec = Spec(storage);
  spec.sampling.splits = {.steps = {0, 2}, .width = 2};
  return spec;
}

// Promise: Trees share steps and change no bit.
TEST_F(GroupSamplerTest, ATreeHasTheBitsOfSamplesThatAreDrawnOneByOne) {
  for (const at::ScalarType storage : {at::kFloat, at::kBFloat16}) {
    const RunSpec spec = TreeSpec(storage);
    const GroupTask task = Task(1, 8);
    const SampledGroup group = Sample(spec, {Task(2, 4), task})[1];
    ASSERT_EQ(group.trajectories.size(), 8u);
    for (uint32_t sample = 0; sample < 8; ++sample) {
      const flow::Paths alone = flow::SamplePaths(
          spec.sampling, {{.run_seed = spec.run_seed, .group = 1, .sample = sample}},
          spec.latent_shape, storage, [&](const at::Tensor& x, const at::Tensor& sigma) {
            return policy_->current().Velocity(x, sigma, task.conditioning);
          });
      const rl::Trajectory& drawn = group.trajectories[sample];
      EXPECT_EQ(drawn.index, sample);
      EXPECT_TRUE(at::equal(drawn.latents, alone.latents.narrow(0, 0, 4).select(1, 0))) << sample;
      for (int64_t step = 0; step < 3; ++step) {
        EXPECT_EQ(drawn.log_prob[static_cast<size_t>(step)], alone.log_prob[step][0].item<float>());
      }
      EXPECT_EQ(group.media[sample], model::DecodeFrames(*decoder_, alone.latents[kSteps])[0]);
    }
  }
}

// Promise: Trees share steps and change no bit.
TEST_F(GroupSamplerTest, TreesOfOneBatchDoNotTouchEachOther) {
  RunSpec spec = TreeSpec();
  for (const bool shared_start : {false, true}) {
    spec.shared_start = shared_start;
    const std::vector<GroupTask> tasks = {Task(1, 8), WindowTask(2, 4, {0, 2}), Task(3, 4)};
    const std::vector<SampledGroup> together = Sample(spec, tasks);
    for (size_t i = 0; i < tasks.size(); ++i) {
      ExpectSameBits(Sample(spec, {tasks[i]})[0], together[i]);
    }
    const std::vector<at::Tensor> starts = StartsOf(together[0]);
    EXPECT_TRUE(at::equal(starts[0], starts[3])) << "one tree";
    EXPECT_EQ(at::equal(starts[0], starts[4]), shared_start) << "the next tree";
  }
}

// That is what trees save.
// Promise: Trees share steps and change no bit.
TEST_F(GroupSamplerTest, ATreeSendsEachOfItsNodesThroughTheNetworkOnce) {
  const auto rows_of = [&](const RunSpec& spec) {
    const int64_t before = policy_->current().rows().forward;
    Sample(spec, {Task(1, 8), Task(2, 4)});
    return policy_->current().rows().forward - before;
  };
  EXPECT_EQ(rows_of(Spec()), 12 * kSteps);
  EXPECT_EQ(rows_of(TreeSpec()), 3 * (1 + 2 + 2 + 4 + 4));
  EXPECT_EQ(rows_of(TreeSpec()), flow::NodesOfGroup(TreeSpec().sampling.splits, 12, kSteps));
}

}  // namespace
}  // namespace oxbow::rollout
