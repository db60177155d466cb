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
    ::testing::Values(
        RuleCase{"NoPart",
                 {"model.memory=recompute + int9"},
                 kError,
                 "model.memory",
                 "recompute + int9"},
        RuleCase{
            "ARungAmongParts", {"model.memory=small + fly"}, kError, "model.memory", "small + fly"},
        RuleCase{
            "OffloadedOnACpu", {"model.memory=offload_average"}, kError, "model.memory", "cuda"},
        RuleCase{
            "OffloadedWeightsOnACpu",
            {"model.memory=offload_weights+recompute", "ema.enabled=false", "eval.use_ema=false"},
            kError,
            "model.memory",
            "cuda"},
        RuleCase{"InputsOfKeptActivations",
                 {"model.memory=offload_inputs", "model.device=cuda"},
                 kError,
                 "model.memory",
                 "needs recompute"},
        RuleCase{"HalvesOfAFullFineTune",
                 {"model.memory=guided_apart", "model.device=cuda"},
                 kError,
                 "model.memory",
                 "lora"},
        RuleCase{"OffloadedWeightsOfKeptActivations",
                 {"model.memory=offload_weights + offload_average", "model.device=cuda"},
                 kError,
                 "model.memory",
                 "needs recompute"},
        RuleCase{"OffloadedWeightsWithAnAverageOnTheGpu",
                 {"model.memory=recompute + offload_weights", "model.device=cuda"},
                 kError,
                 "model.memory",
                 "needs offload_average"},
        RuleCase{"ShardedGradientsOfALora",
                 {"model.memory=shard_gradients", "model.trained=lora"},
                 kError,
                 "model.memory",
                 "a LoRA are small"},
        RuleCase{"ShardedGradientsWithWholeMoments",
                 {"model.memory=shard_gradients + whole_optimizer"},
                 kError,
                 "model.memory",
                 "excludes whole_optimizer"},
        RuleCase{
            "Int8OfWhatTrains", {"model.memory=int8"}, kError, "model.memory", "do not train"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace oxbow::config
