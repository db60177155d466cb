// SPDX-License-Identifier: Apache-2.0
// The learner's reading of a config against what `oxbow validate` and its plan say of it.
#include "services/learner/run_setup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "config/run_config.h"
#include "config/yaml_message.h"
#include "run/sampling_spec.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::learner {
namespace {

// A setup of a random valid config; its model is a latent shape alone.
RunSetup RandomSetup(std::mt19937_64& random) {
  const auto one_of = [&](std::initializer_list<const char*> values) {
    return std::string(*(values.begin() + random() % values.size()));
  };
  const std::vector<std::string> overrides = {
      "method.name=" + one_of({"grpo", "guard", "nft", "awm", "v_grpo"}),
      "sampling.tail=" + one_of({"ode", "sde"}),
      "sampling.storage=" + one_of({"f32", "f16", "bf16"}),
      "sampling.window.kind=" + one_of({"all", "random", "subset", "progressive"}),
      "sampling.window.size=" + one_of({"1", "2", "3"}),
      "replay.fraction=" + one_of({"0", "0.25"}),
      "batch.group_size=" + one_of({"4", "8"}),
      "sampling.shift=3"};
  RunSetup setup;
  setup.config =
      config::LoadRunConfig(OXBOW_SOURCE_DIR "/configs/recipes/digits-op-grpo.yaml", overrides, {})
          .value()
          .config;
  setup.sampling = run::SamplingSpecFromConfig(setup.config.sampling()).value();
  setup.model.latent_shape = {static_cast<int64_t>(1 + random() % 16),
                              static_cast<int64_t>(1 + random() % 64),
                              static_cast<int64_t>(1 + random() % 64)};
  return setup;
}

// The sink refuses a larger group by its rules, and is made large enough by the plan.
TEST(RunSetupTest, TheSinksRulesAllowAsManyBytesAsThePlanCounts) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 50; ++i) {
    const RunSetup setup = RandomSetup(random);
    EXPECT_EQ(GroupRulesOf(setup).GroupBytesMax(),
              run::GroupBytesMax(setup.config, setup.model.latent_shape))
        << setup.config.DebugString();
  }
}

// A scheduler whose shift grows with the tokens, and training at one size with evaluation at
// another.
TEST(RunSetupTest, AnEvaluationOfAnotherSizeIsThatOfARunOfThatSize) {
  const testing::ScopedDirectory scratch;
  const std::filesystem::path model = scratch.path() / "model";
  std::filesystem::copy(OXBOW_SOURCE_DIR "/models/digits", model,
                        std::filesystem::copy_options::recursive);
  std::ofstream(model / "scheduler" / "scheduler_config.json")
      << R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000,
             "use_dynamic_shifting": true, "base_shift": 0.5, "max_shift": 1.15,
             "base_image_seq_len": 2, "max_image_seq_len": 40})";
  const auto setup = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(),
                     {"model.path=" + model.string(), "sampling.shift=0", "eval.every=1",
                      "prompts.train=" OXBOW_SOURCE_DIR "/configs/prompts/digits_train.txt",
                      "prompts.eval=" OXBOW_SOURCE_DIR "/configs/prompts/digits_eval.txt"});
    return ReadSetup(config::LoadRunConfig(OXBOW_SOURCE_DIR "/configs/recipes/digits-op-grpo.yaml",
                                           overrides, {})
                         .value()
                         .config)
        .value();
  };
  const RunSetup own = setup({});
  const RunSetup other = setup({"eval.height=16", "eval.width=12"});
  const RunSetup trained = setup({"sampling.height=16", "sampling.width=12"});
  EXPECT_EQ(other.evaluated_shape, (std::vector<int64_t>{1, 16, 12}));
  EXPECT_EQ(other.evaluated_shape, trained.evaluated_shape);
  EXPECT_EQ(EvaluationSpecOf(other)->sigmas, EvaluationSpecOf(trained)->sigmas);
  EXPECT_NE(EvaluationSpecOf(other)->sigmas, EvaluationSpecOf(own)->sigmas);
  const Evaluation::Options evaluation = EvaluationOptionsOf(other, Epoch(1), {});
  EXPECT_EQ(evaluation.size.height, 16);
  EXPECT_EQ(evaluation.size.width, 12);
  EXPECT_EQ(other.model.latent_shape, own.model.latent_shape);
  EXPECT_EQ(other.sampling.sigmas, own.sampling.sigmas) << "training is as it was";
  EXPECT_EQ(GroupRulesOf(other).latent_shape, GroupRulesOf(own).latent_shape);
}

std::vector<v1::Prompt> NumberedPrompts(uint64_t count) {
  std::vector<v1::Prompt> prompts(count);
  for (uint64_t i = 0; i < count; ++i) prompts[i].set_id(i + 1);
  return prompts;
}

std::set<uint64_t> IdsOf(const std::vector<v1::Prompt>& prompts) {
  std::set<uint64_t> ids;
  for (const v1::Prompt& prompt : prompts) ids.insert(prompt.id());
  return ids;
}

// Up to `count` of the prompts that were taken before.
std::vector<v1::Prompt> SomeOf(const std::vector<v1::Prompt>& taken, uint64_t count,
                               std::mt19937_64& random) {
  std::vector<v1::Prompt> some;
  for (uint64_t i = 0; i < count && !taken.empty(); ++i) {
    some.push_back(taken[random() % taken.size()]);
  }
  return some;
}

// Heads and waiting prompts are any that were taken before.
// Promise: A run encodes the prompts that it can take. No step takes a prompt that was not among
// those of the start, whatever heads and waiting prompts join it. Held-out prompts come first, then
// those of training in the run's order. Prompts that are encoded beside the training have the same
// bits, and a run that drains does not wait for them.
TEST(PromptsNeededTest, NoStepTakesAPromptThatIsNotAmongThem) {
  uint64_t left_out = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    RunSetup setup;
    const auto groups = static_cast<uint32_t>(1 + random() % 8);
    const uint64_t steps = 1 + random() % 12;
    setup.train = NumberedPrompts(groups + random() % 90);
    setup.config.mutable_run()->set_steps(steps);
    setup.config.mutable_run()->set_seed(seed);
    setup.config.mutable_batch()->set_groups(groups);
    const std::set<uint64_t> needed = IdsOf(PromptsNeeded(setup));
    EXPECT_LE(needed.size(), steps * groups + groups);
    left_out += setup.train.size() - needed.size();
    PromptOrder order(setup.train, seed);
    std::vector<v1::Prompt> taken;
    for (uint64_t step = 0; step < steps; ++step) {
      StepDraft draft{.step = LearnerStep(step), .groups = groups};
      for (const v1::Prompt& prompt : SomeOf(taken, random() % groups, random)) {
        draft.spread.push_back({prompt, MixedGroup()});
      }
      for (const v1::Prompt& prompt : SomeOf(taken, random() % groups, random)) {
        draft.next.push_back({prompt, AgainGroup()});
      }
      const StepPlan plan = PlanStep(std::move(draft), order);
      for (const PlannedGroup& group : plan.groups) {
        ASSERT_TRUE(needed.contains(group.prompt.id())) << "step " << step;
        taken.push_back(group.prompt);
      }
    }
  }
  EXPECT_GT(left_out, 5000u) << "of a large file most is left out";
}

// Promise: A run encodes the prompts that it can take.
TEST(PromptsNeededTest, WhereAnyMayBeTakenAllAreAndHeldOutOnesAreThoseThatAreDrawn) {
  RunSetup setup;
  setup.train = NumberedPrompts(100);
  setup.held_out = NumberedPrompts(300);
  for (v1::Prompt& prompt : setup.held_out) prompt.set_id(prompt.id() + 1000);
  setup.config.mutable_run()->set_steps(3);
  setup.config.mutable_batch()->set_groups(4);
  setup.config.mutable_eval()->set_images(70);
  const std::vector<v1::Prompt> needed = PromptsNeeded(setup);
  ASSERT_EQ(needed.size(), 70 + 12u);
  EXPECT_EQ(needed[0].id(), 1001u) << "held-out ones are first";
  EXPECT_EQ(needed[69].id(), 1070u);
  setup.config.mutable_batch()->set_dynamic_sampling_max(1);
  EXPECT_EQ(PromptsNeeded(setup).size(), 170u);
  setup.config.mutable_batch()->set_dynamic_sampling_max(0);
  setup.config.mutable_prompts()->set_choice(v1::PROMPT_CHOICE_LEARNABLE);
  EXPECT_EQ(PromptsNeeded(setup).size(), 170u);
}

TEST(HyperParametersTest, AreKeysOfARunFileWithTheirValues) {
  const auto resolved = config::LoadRunConfig(
      "", {"recipe=digits-op-grpo", "run.seed=7", "optimizer.learning_rate=0.125"}, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const auto values = HyperParametersOf(resolved->config);
  EXPECT_EQ(std::get<double>(values.at("run.seed")), 7);
  EXPECT_EQ(std::get<double>(values.at("optimizer.learning_rate")), 0.125);
  EXPECT_EQ(std::get<std::string>(values.at("method.name")), "grpo");
  EXPECT_EQ(std::get<std::string>(values.at("reward.terms")), "[{name: digits_ocr, weight: 1}]");
  const std::vector<std::string> keys = config::LeafKeys(*v1::RunConfig::descriptor());
  for (const auto& [key, value] : values) {
    EXPECT_NE(std::find(keys.begin(), keys.end(), key), keys.end()) << key;
  }
}

}  // namespace
}  // namespace oxbow::learner
