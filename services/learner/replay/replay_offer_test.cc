// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/replay_offer.h"

#include <gtest/gtest.h>

#include <set>

namespace oxbow::learner {
namespace {

// A group of one-byte-per-row-like latents: 4 rows of 2 floats, row i filled with byte i.
v1::Group GroupOf(const std::vector<double>& rewards) {
  v1::Group group;
  for (size_t i = 0; i < rewards.size(); ++i) {
    v1::Trajectory& trajectory = *group.add_trajectories();
    trajectory.set_sample(static_cast<uint32_t>(i));
    trajectory.set_reward(rewards[i]);
    v1::Tensor& latents = *trajectory.mutable_latents();
    latents.set_dtype(v1::DTYPE_F32);
    for (const int64_t size : {4, 1, 1, 2}) latents.add_shape(size);
    for (char row = 0; row < 4; ++row) latents.mutable_data()->append(8, row);
    for (int step = 0; step < 3; ++step) {
      trajectory.add_log_prob(static_cast<float>(i));
      trajectory.add_sde(true);
    }
  }
  return group;
}

PlannedGroup Planned() {
  PlannedGroup planned{.id = GroupId(17), .step = LearnerStep(2)};
  planned.prompt.set_id(5);
  return planned;
}

const OfferRules kRules{.run_seed = 1, .kept_steps = 2, .sigmas = {1, 0.5, 0.25, 0}};

TEST(ReplayOfferTest, BestFreshSampleIsOfferedAndTiesGoToTheLowestIndex) {
  const auto offer = MakeOffer(GroupOf({.1, .9, .9, .2}), Planned(), kRules);
  ASSERT_TRUE(offer.has_value());
  EXPECT_EQ(offer->trajectory().sample(), 1u);
  EXPECT_EQ(offer->raw_reward(), .9);
  EXPECT_EQ(offer->birth_step(), 2u);
  EXPECT_EQ(offer->prompt().id(), 5u);
  EXPECT_EQ(offer->sigmas_size(), 4);
  EXPECT_EQ(offer->trajectory().log_prob_size(), 3);
}

TEST(ReplayOfferTest, KeepsTheLatentsUpToTheLastKeptTransition) {
  const auto offer = MakeOffer(GroupOf({.1, .9}), Planned(), kRules);
  EXPECT_EQ(offer->trajectory().latents().shape(0), 3);
  EXPECT_EQ(offer->trajectory().latents().data(),
            std::string(8, 0) + std::string(8, 1) + std::string(8, 2));
}

// Four latents from x_1 on, of a trajectory of eight steps whose window is steps 1 to 3.
v1::Group WindowGroup() {
  v1::Group group = GroupOf({.1, .9});
  for (v1::Trajectory& trajectory : *group.mutable_trajectories()) {
    trajectory.set_first_latent(1);
    trajectory.clear_sde();
    for (int step = 0; step < 8; ++step) trajectory.add_sde(step >= 1 && step < 4);
  }
  return group;
}

TEST(ReplayOfferTest, KeepsTheLatentsOfTheWindowAlone) {
  OfferRules rules = kRules;
  rules.kept_steps = 3;  // Transitions 1 and 2 of the window's three.
  const auto offer = MakeOffer(WindowGroup(), Planned(), rules);
  ASSERT_TRUE(offer.has_value());
  EXPECT_EQ(offer->trajectory().first_latent(), 1u);
  EXPECT_EQ(offer->trajectory().latents().shape(0), 3);
  EXPECT_EQ(offer->trajectory().latents().data(),
            std::string(8, 0) + std::string(8, 1) + std::string(8, 2));
  rules.kept_steps = 8;
  EXPECT_EQ(MakeOffer(WindowGroup(), Planned(), rules)->trajectory().latents().shape(0), 4);
}

TEST(ReplayOfferTest, AWindowPastTheKeptStepsOffersNothing) {
  OfferRules rules = kRules;
  rules.kept_steps = 1;
  EXPECT_FALSE(MakeOffer(WindowGroup(), Planned(), rules).has_value());
}

// A run that keeps other steps than the one that stored the entry takes what there is.
TEST(ReplayOfferTest, AHeadEndsWithItsLastStochasticStepThatWasStored) {
  v1::Trajectory stored = WindowGroup().trajectories(0);
  EXPECT_EQ(HeadSpan(stored, 8).first, 1);
  EXPECT_EQ(HeadSpan(stored, 8).end(), 5);
  stored.mutable_latents()->set_shape(0, 3);
  EXPECT_EQ(HeadSpan(stored, 8).end(), 4);
  EXPECT_EQ(HeadSpan(stored, 2).end(), 3);
  stored.set_sde(1, false);
  EXPECT_EQ(HeadSpan(stored, 8).first, 2);
  stored.clear_latents();
  EXPECT_EQ(HeadSpan(stored, 8).count, 0);
}

// Methods that noise images again keep x_T, drawn by whatever steps.
TEST(ReplayOfferTest, AnImageIsTheFinalLatentAlone) {
  v1::Trajectory trajectory;
  for (int i = 0; i < 4; ++i) trajectory.add_sde(false);
  trajectory.set_first_latent(4);
  trajectory.mutable_latents()->add_shape(1);
  const flow::LatentSpan image = ImageSpan(trajectory);
  EXPECT_EQ(image.first, 4);
  EXPECT_EQ(image.count, 1);
  trajectory.set_first_latent(3);  // x_3 alone is no image.
  EXPECT_EQ(ImageSpan(trajectory).count, 0);
  EXPECT_EQ(HeadSpan(trajectory, 4).count, 0) << "and no head";
}

TEST(ReplayOfferTest, ReplayedAndFailedSamplesAreNeverOffered) {
  v1::Group group = GroupOf({.1, .9, .8});
  group.mutable_trajectories(1)->set_replayed(true);
  group.mutable_trajectories(2)->set_reward_failed(true);
  EXPECT_FALSE(MakeOffer(group, Planned(), kRules).has_value())
      << "one fresh sample is no contrast";
  group.add_trajectories()->CopyFrom(group.trajectories(0));
  group.mutable_trajectories(3)->set_reward(.95);
  group.mutable_trajectories(3)->set_sample(3);
  EXPECT_EQ(MakeOffer(group, Planned(), kRules)->trajectory().sample(), 3u);
}

TEST(ReplayOfferTest, GroupsWithoutVarianceOfferNothing) {
  EXPECT_FALSE(MakeOffer(GroupOf({.5, .5}), Planned(), kRules).has_value());
}

// Else a replayed success lends its reward to a group that failed whole.
// Promise: A failure never replaces a success. An offer beat the mean of its group, with fresh
// samples that differ; a replayed success beside it is no evidence. Nothing else is offered. Every
// reward but the floor itself decays, below the floor too.
TEST(ReplayOfferTest, OnlyFreshSamplesMakeASuccess) {
  v1::Group failed = GroupOf({0, 0, 1});
  failed.mutable_trajectories(2)->set_replayed(true);
  EXPECT_FALSE(MakeOffer(failed, Planned(), kRules).has_value());
  failed.mutable_trajectories(2)->set_reward(-1);  // Worse than all: still no evidence.
  EXPECT_FALSE(MakeOffer(failed, Planned(), kRules).has_value());
  v1::Group weak = GroupOf({0, .1, 1});
  weak.mutable_trajectories(2)->set_replayed(true);
  EXPECT_FALSE(MakeOffer(weak, Planned(), kRules).has_value()) << "below the mean of its group";
  weak.mutable_trajectories(1)->set_reward(.9);
  EXPECT_EQ(MakeOffer(weak, Planned(), kRules)->raw_reward(), .9);
}

// Promise: Draws follow from the seed. Ids of replay entries, and so draws, follow from seed, group
// and sample. Runs that differ in their name alone replay the same.
TEST(ReplayOfferTest, EntryIdsAreStableAndDistinct) {
  std::set<uint64_t> ids;
  for (uint64_t group = 0; group < 100; ++group) {
    for (uint32_t sample = 0; sample < 24; ++sample) {
      ids.insert(EntryIdOf(kRules, GroupId(group), sample).value);
    }
  }
  EXPECT_EQ(ids.size(), 2400u);
  EXPECT_EQ(EntryIdOf(kRules, GroupId(3), 4), EntryIdOf(kRules, GroupId(3), 4));
  OfferRules other = kRules;
  other.run_seed = 2;
  EXPECT_NE(EntryIdOf(kRules, GroupId(3), 4), EntryIdOf(other, GroupId(3), 4));
  // Stored ids name entries of checkpoints; nothing but seed, group and sample is in them.
  EXPECT_EQ(EntryIdOf({.run_seed = 1}, GroupId(3), 4).value, 8123399789946284194u);
}

}  // namespace
}  // namespace oxbow::learner
