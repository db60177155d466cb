// SPDX-License-Identifier: Apache-2.0
// The wire changes no bit of what was sampled, and lets nothing malformed
// through.
#include "rpc/convert_torch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "base/philox.h"
#include "run/prompt.h"

namespace oxbow::rpc {
namespace {

// Values that `storage` holds exactly, as sampling leaves them.
at::Tensor Rounded(std::mt19937_64& random, at::IntArrayRef shape, at::ScalarType storage) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  RandomStream(StreamKey{.seed = random()})
      .FillNormal(std::span(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())));
  return tensor.to(storage).to(at::kFloat);
}

rl::Trajectory RandomSample(std::mt19937_64& random, uint32_t index, int steps,
                            at::ScalarType storage) {
  rl::Trajectory sample;
  sample.index = index;
  sample.first_latent = static_cast<int>(random() % 3);
  sample.latents = Rounded(random, {steps + 1 - sample.first_latent, 1, 2, 3}, storage);
  for (int i = 0; i < steps; ++i) {
    sample.log_prob.push_back(static_cast<float>(random() % 1000) / 7);
    sample.sde.push_back(random() % 2 == 0);
    sample.behaviour_version.push_back(random());
  }
  sample.rewards = {{"digits_ocr", 1.0 / 3}, {"digits_strict", 0}};
  sample.reward = 1.0 / 3;
  sample.reward_failed = random() % 2 == 0;
  sample.replayed = random() % 2 == 0;
  sample.entry_id = EntryId(random());
  sample.kept_steps = static_cast<int>(random() % 5);
  sample.stored_reward = 2.0 / 3;
  return sample;
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && at::equal(a, b);
}

TEST(ConvertTorchTest, GroupsSurviveTheWireBitForBitInEveryStorageDType) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (const at::ScalarType storage : {at::kFloat, at::kHalf, at::kBFloat16}) {
    rl::Group group;
    group.id = GroupId(random());
    group.prompt_text = "text 473";
    group.prompt_metadata_json = "{}";
    for (uint32_t i = 0; i < 3; ++i)
      group.trajectories.push_back(RandomSample(random, i, 6, storage));
    v1::Group parsed;
    ASSERT_TRUE(parsed.ParseFromString(ToProto(group, 7, storage).SerializeAsString()));
    const absl::StatusOr<rl::Group> back = GroupFromProto(parsed);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->id, group.id);
    EXPECT_EQ(back->prompt_text, group.prompt_text);
    EXPECT_EQ(parsed.trajectories(0).schedule_id(), 7);
    for (size_t i = 0; i < group.trajectories.size(); ++i) {
      const rl::Trajectory &sent = group.trajectories[i], &got = back->trajectories[i];
      EXPECT_TRUE(SameBits(sent.latents, got.latents));
      EXPECT_EQ(sent.index, got.index);
      EXPECT_EQ(sent.first_latent, got.first_latent);
      EXPECT_EQ(sent.log_prob, got.log_prob);
      EXPECT_EQ(sent.sde, got.sde);
      EXPECT_EQ(sent.behaviour_version, got.behaviour_version);
      EXPECT_EQ(sent.rewards, got.rewards);
      EXPECT_EQ(sent.reward, got.reward);
      EXPECT_EQ(sent.reward_failed, got.reward_failed);
      EXPECT_EQ(sent.replayed, got.replayed);
      EXPECT_EQ(sent.entry_id, got.entry_id);
      EXPECT_EQ(sent.kept_steps, got.kept_steps);
      EXPECT_EQ(sent.stored_reward, got.stored_reward);
    }
  }
}

TEST(ConvertTorchTest, ConditioningSurvivesTheWire) {
  std::mt19937_64 random(1);
  const std::vector<model::ConditioningPart> parts = {
      {model::kPromptTokens, {model::kPromptLength, 4}},
      {model::kPooledPrompt, {5}},
      {"guidance", {}},
      {"mask", {model::kPromptLength}, model::ConditioningPart::Values::kMask}};
  const model::Conditioning sent = {{model::kPromptTokens, Rounded(random, {1, 6, 4}, at::kFloat)},
                                    {model::kPooledPrompt, Rounded(random, {1, 5}, at::kFloat)},
                                    {"guidance", Rounded(random, {1}, at::kFloat)},
                                    {"mask", Rounded(random, {1, 6}, at::kFloat)}};
  const v1::Conditioning wire = ToProto(sent);
  EXPECT_EQ(wire.tokens().shape_size(), 2) << "SD3's two have fields of their own";
  EXPECT_EQ(wire.pooled().shape_size(), 1);
  EXPECT_EQ(wire.parts_size(), 2);
  const absl::StatusOr<model::Conditioning> back = ConditioningFromProto(wire, parts);
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->size(), sent.size());
  for (const auto& [name, tensor] : sent) EXPECT_TRUE(SameBits(tensor, back->at(name))) << name;
}

// Promise: Conditioning is what the learner made.
TEST(ConvertTorchTest, ConditioningTravelsInSixteenBitsWhereTheyHoldEveryValue) {
  std::mt19937_64 random(2);
  const auto travels_as = [](const at::Tensor& values) {
    const v1::Conditioning wire = ToProto(model::Conditioning{{"part", values}});
    const auto back = ConditioningFromProto(wire, {{"part", {model::kPromptLength}}});
    EXPECT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->at("part").scalar_type(), at::kFloat);
    EXPECT_TRUE(SameBits(values, back->at("part")));
    return wire.parts(0).tensor().dtype();
  };
  const at::Tensor values = Rounded(random, {1, 64}, at::kFloat);
  EXPECT_EQ(travels_as(values), v1::DTYPE_F32);
  EXPECT_EQ(travels_as(values.to(at::kHalf).to(at::kFloat)), v1::DTYPE_F16);
  EXPECT_EQ(travels_as((values * 1e30).to(at::kBFloat16).to(at::kFloat)), v1::DTYPE_BF16);
  EXPECT_EQ(travels_as(at::tensor({-0.0f, 0.0f, INFINITY, -INFINITY}).unsqueeze(0)), v1::DTYPE_F16);
  EXPECT_EQ(travels_as(at::tensor({1.0f, 1e30f, 1.0009765625f}).unsqueeze(0)), v1::DTYPE_F32)
      << "each type holds some of them";
}

TEST(ConvertTorchTest, ConditioningOfAnotherModelIsRefusedByName) {
  std::mt19937_64 random(1);
  const std::vector<model::ConditioningPart> parts = {
      {model::kPromptTokens, {model::kPromptLength, 4}}};
  const auto why = [&](const model::Conditioning& sent) {
    return std::string(ConditioningFromProto(ToProto(sent), parts).status().message());
  };
  const at::Tensor tokens = Rounded(random, {1, 6, 4}, at::kFloat);
  EXPECT_EQ(why({{model::kPromptTokens, tokens}}), "");
  EXPECT_FALSE(ConditioningFromProto(v1::Conditioning(), parts).ok());
  EXPECT_NE(why({{model::kPromptTokens, tokens[0].narrow(0, 0, 1)}}).find("conditioning.tokens"),
            std::string::npos);
  EXPECT_NE(why({{model::kPromptTokens, tokens.narrow(2, 0, 3)}}).find("must be 4, got 3"),
            std::string::npos);
  EXPECT_NE(why({{model::kPromptTokens, tokens}, {"mask", tokens}}).find("does not take: mask"),
            std::string::npos);
}

TEST(ConvertTorchTest, ATailWithoutLatentsStaysWithoutLatents) {
  std::mt19937_64 random(2);
  rl::Trajectory sample = RandomSample(random, 7, 4, at::kFloat);
  sample.latents = at::Tensor();
  const absl::StatusOr<rl::Trajectory> back = TrajectoryFromProto(ToProto(sample, 1, at::kFloat));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_FALSE(back->latents.defined());
}

TEST(ConvertTorchTest, RefusesMalformedTrajectories) {
  std::mt19937_64 random(3);
  const v1::Trajectory good = ToProto(RandomSample(random, 0, 5, at::kFloat), 1, at::kFloat);
  ASSERT_TRUE(TrajectoryFromProto(good).ok());
  const std::vector<std::function<void(v1::Trajectory&)>> breakages = {
      [](v1::Trajectory& t) { t.add_log_prob(0); },
      [](v1::Trajectory& t) { t.mutable_sde()->RemoveLast(); },
      [](v1::Trajectory& t) { t.set_log_prob(0, NAN); },
      [](v1::Trajectory& t) { t.set_reward(INFINITY); },
      [](v1::Trajectory& t) { t.mutable_rewards(0)->set_value(NAN); },
      [](v1::Trajectory& t) { t.mutable_rewards(1)->set_name(t.rewards(0).name()); },
      [](v1::Trajectory& t) { t.set_kept_steps(6); },
      [](v1::Trajectory& t) { t.set_first_latent(t.first_latent() + 1); },
      [](v1::Trajectory& t) { t.mutable_latents()->mutable_data()->pop_back(); },
      [](v1::Trajectory& t) { t.mutable_latents()->set_dtype(v1::DTYPE_UNSPECIFIED); },
      [](v1::Trajectory& t) {
        t.mutable_latents()->mutable_data()->replace(0, 4, "\xff\xff\xff\xff");
      },
  };
  for (size_t i = 0; i < breakages.size(); ++i) {
    v1::Trajectory bad = good;
    breakages[i](bad);
    EXPECT_EQ(TrajectoryFromProto(bad).status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
  v1::Group twice;
  *twice.mutable_prompt() = run::MakePrompt("text 473", "");
  *twice.add_trajectories() = good;
  *twice.add_trajectories() = good;
  EXPECT_FALSE(GroupFromProto(twice).ok());
}

}  // namespace
}  // namespace oxbow::rpc
