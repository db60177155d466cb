// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/experience_builder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "rpc/convert_torch.h"
#include "run/prompt.h"
#include "tests/testing/own_memory.h"

namespace oxbow::learner {
namespace {

constexpr int kSteps = 4;
constexpr int kKept = 2;

at::Tensor Path() {
  return at::arange((kSteps + 1) * 4, at::kFloat).reshape({kSteps + 1, 1, 2, 2}).div(7);
}

v1::Trajectory WireSample(uint32_t index, const at::Tensor& latents, uint64_t version) {
  rl::Trajectory sample;
  sample.index = index;
  sample.latents = latents;
  for (int step = 0; step < kSteps; ++step) {
    sample.log_prob.push_back(-1.f - static_cast<float>(step) - static_cast<float>(version));
    sample.sde.push_back(step < 3);
    sample.behaviour_version.push_back(version);
  }
  sample.reward = 0.5;
  return rpc::ToProto(sample, 77, at::kFloat);
}

// A stored head (version 4) and a tail that starts at `tail_from` (version 10).
struct Mixed {
  v1::Group group;
  PlannedGroup planned{.id = GroupId(3)};
};

Mixed MakeMixed(const at::Tensor& tail) {
  Mixed mixed;
  *mixed.group.mutable_prompt() = run::MakePrompt("text 123", "");
  *mixed.group.add_trajectories() = WireSample(0, Path(), 10);
  v1::Trajectory replayed = WireSample(1, tail, 10);
  if (!tail.defined()) replayed.clear_latents();
  replayed.set_first_latent(kKept);
  replayed.set_replayed(true);
  replayed.set_entry_id(9);
  replayed.set_kept_steps(kKept);
  *mixed.group.add_trajectories() = replayed;
  mixed.planned.kind =
      MixedGroup{{.entry = EntryId(9), .kept_steps = kKept, .stored_reward = 0.75}};
  mixed.planned.head()->trajectory = WireSample(5, Path().slice(0, 0, kKept + 1), 4);
  return mixed;
}

TEST(ExperienceBuilderTest, ReplayedSampleIsTheStoredHeadAndTheFreshTailBitForBit) {
  const Mixed mixed = MakeMixed(Path().slice(0, kKept));
  const auto group = BuildGroup(mixed.group, mixed.planned, {});
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_TRUE(at::equal(group->trajectories[0].latents, Path()));
  const rl::Trajectory& replayed = group->trajectories[1];
  EXPECT_TRUE(at::equal(replayed.latents, Path()));
  EXPECT_EQ(replayed.first_latent, 0);
  EXPECT_EQ(replayed.behaviour_version, (std::vector<uint64_t>{4, 4, 10, 10}));
  EXPECT_EQ(replayed.log_prob, (std::vector<float>{-5, -6, -13, -14}));
  EXPECT_EQ(replayed.stored_reward, 0.75);
  EXPECT_EQ(replayed.entry_id, EntryId(9));
}

TEST(ExperienceBuilderTest, TailThatWasNotKeptLeavesTheHead) {
  const Mixed mixed = MakeMixed({});
  const auto group = BuildGroup(mixed.group, mixed.planned, {});
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_TRUE(at::equal(group->trajectories[1].latents, Path().slice(0, 0, kKept + 1)));
}

// A head whose window begins at step 1 has no x_0.
TEST(ExperienceBuilderTest, AHeadMayBeginAtItsFirstStochasticStep) {
  for (const bool with_tail : {false, true}) {
    Mixed mixed = MakeMixed(with_tail ? Path().slice(0, kKept) : at::Tensor());
    v1::Trajectory& head = mixed.planned.head()->trajectory;
    head = WireSample(5, Path().slice(0, 1, kKept + 1), 4);
    head.set_first_latent(1);
    head.set_sde(0, false);
    const auto group = BuildGroup(mixed.group, mixed.planned, {});
    ASSERT_TRUE(group.ok()) << group.status();
    const rl::Trajectory& replayed = group->trajectories[1];
    EXPECT_EQ(replayed.first_latent, 1);
    EXPECT_TRUE(
        at::equal(replayed.latents, Path().slice(0, 1, with_tail ? kSteps + 1 : kKept + 1)));
    EXPECT_FALSE(replayed.sde[0]);
    EXPECT_TRUE(replayed.sde[1]);
    head.set_first_latent(0);  // Now it ends one step too early.
    EXPECT_FALSE(BuildGroup(mixed.group, mixed.planned, {}).ok());
  }
}

TEST(ExperienceBuilderTest, AWholeHeadIsASampleOfItsOwn) {
  Mixed mixed = MakeMixed({});
  mixed.planned.kind = WholeGroup{*mixed.planned.head()};
  EXPECT_FALSE(BuildGroup(mixed.group, mixed.planned, {}).ok()) << "nobody was asked for its tail";
  mixed.group.mutable_trajectories()->RemoveLast();
  v1::NamedValue& score = *mixed.planned.head()->trajectory.add_rewards();
  score.set_name("digits_ocr");
  score.set_value(0.75);
  for (const bool outline : {false, true}) {
    const auto group = outline ? BuildOutline(mixed.group, mixed.planned)
                               : BuildGroup(mixed.group, mixed.planned, {});
    ASSERT_TRUE(group.ok()) << group.status();
    ASSERT_EQ(group->trajectories.size(), 2u);
    EXPECT_FALSE(group->from_data_set);
    const rl::Trajectory& whole = group->trajectories[1];
    EXPECT_TRUE(whole.replayed);
    EXPECT_EQ(whole.index, 1u);
    EXPECT_EQ(whole.entry_id, EntryId(9));
    EXPECT_EQ(whole.kept_steps, kKept);
    EXPECT_EQ(whole.reward, 0.5) << "of its first picture";
    EXPECT_EQ(whole.rewards.at("digits_ocr"), 0.75);
    EXPECT_EQ(whole.behaviour_version, (std::vector<uint64_t>{4, 4, 4, 4}));
    EXPECT_EQ(whole.latents.size(0), kKept + 1);
  }
  mixed.planned.head()->kept_steps = kKept + 1;
  EXPECT_FALSE(BuildGroup(mixed.group, mixed.planned, {}).ok());
}

// An outline is made of each group in each round of refills, of a step's gigabytes.
TEST(ExperienceBuilderTest, AnOutlineCopiesNoLatents) {
  constexpr size_t kBytes = size_t{64} << 20;
  Mixed mixed = MakeMixed(Path().slice(0, kKept));
  v1::Trajectory& head = mixed.planned.head()->trajectory;
  for (v1::Trajectory* trajectory : {mixed.group.mutable_trajectories(0), &head}) {
    trajectory->mutable_latents()->mutable_data()->assign(kBytes, 'x');
  }
  const int64_t before = testing::ForgetPeakMemory();
  const auto outline = BuildOutline(mixed.group, mixed.planned);
  ASSERT_TRUE(outline.ok()) << outline.status();
  EXPECT_LT(testing::OwnMemory("VmHWM") - before, int64_t{kBytes / 4});
  for (const rl::Trajectory& sample : outline->trajectories) {
    EXPECT_TRUE(sample.latents.is_meta());
    EXPECT_EQ(sample.latents.size(0), kSteps + 1);
  }
}

TEST(ExperienceBuilderTest, TailOfAnotherHeadIsRefused) {
  const Mixed mixed = MakeMixed(Path().slice(0, kKept).add(1e-6));
  EXPECT_EQ(BuildGroup(mixed.group, mixed.planned, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace oxbow::learner
