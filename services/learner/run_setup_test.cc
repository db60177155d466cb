// SPDX-License-Identifier: Apache-2.0
// What the learner makes of a config against what `oxbow validate` and its plan say of it.
#include "services/learner/run_setup.h"

#include <gtest/gtest.h>

#include <random>

#include "config/run_config.h"
#include "run/group_bytes.h"
#include "run/sampling_spec.h"

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

}  // namespace
}  // namespace oxbow::learner
