// SPDX-License-Identifier: Apache-2.0
// Rules of settings that save a learner's memory.
#include <gtest/gtest.h>

#include "tests/testing/rule_case.h"

namespace oxbow::config {
namespace {

class MemoryRuleTest : public ::testing::TestWithParam<RuleCase> {};

TEST_P(MemoryRuleTest, IsTheOnlyProblemReported) { ExpectOnlyProblem(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    MemoryRules, MemoryRuleTest,
    ::testing::Values(RuleCase{"OffloadedOnACpu",
                               {"learner.offload_average=true"},
                               kError,
                               "learner.offload_average",
                               "cuda"},
                      RuleCase{"OffloadedWeightsOnACpu",
                               {"learner.offload_weights=true", "model.checkpoint_activations=true",
                                "ema.enabled=false", "eval.use_ema=false"},
                               kError,
                               "learner.offload_weights",
                               "cuda"},
                      RuleCase{"OffloadedWeightsOfKeptActivations",
                               {"learner.offload_weights=true", "learner.offload_average=true",
                                "model.device=cuda"},
                               kError,
                               "learner.offload_weights",
                               "model.checkpoint_activations"},
                      RuleCase{"OffloadedWeightsWithAnAverageOnTheGpu",
                               {"learner.offload_weights=true", "model.checkpoint_activations=true",
                                "model.device=cuda"},
                               kError,
                               "learner.offload_weights",
                               "learner.offload_average"},
                      RuleCase{"ShardedGradientsOfALora",
                               {"learner.shard_gradients=true", "model.trained=lora"},
                               kError,
                               "learner.shard_gradients",
                               "a LoRA are small"},
                      RuleCase{"ShardedGradientsWithWholeMoments",
                               {"learner.shard_gradients=true", "learner.shard_optimizer=false"},
                               kError,
                               "learner.shard_gradients",
                               "learner.shard_optimizer"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace oxbow::config
