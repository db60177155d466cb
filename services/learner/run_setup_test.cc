// SPDX-License-Identifier: Apache-2.0
// What the learner makes of a config against what `oxbow validate` and its plan say of it.
#include "services/learner/run_setup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "config/run_config.h"
#include "run/group_bytes.h"
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
  const Evaluation::Options evaluation = EvaluationOptionsOf(other).value();
  EXPECT_EQ(evaluation.pictures.latent_shape, (std::vector<int64_t>{1, 16, 12}));
  EXPECT_EQ(evaluation.pictures.latent_shape, EvaluationOptionsOf(trained)->pictures.latent_shape);
  EXPECT_EQ(evaluation.pictures.sigmas, EvaluationOptionsOf(trained)->pictures.sigmas);
  EXPECT_NE(evaluation.pictures.sigmas, EvaluationOptionsOf(own)->pictures.sigmas);
  EXPECT_LT(evaluation.pictures.at_once, EvaluationOptionsOf(own)->pictures.at_once);
  EXPECT_EQ(other.model.latent_shape, own.model.latent_shape);
  EXPECT_EQ(other.sampling.sigmas, own.sampling.sigmas) << "training is as it was";
  EXPECT_EQ(GroupRulesOf(other).latent_shape, GroupRulesOf(own).latent_shape);
}

}  // namespace
}  // namespace oxbow::learner
