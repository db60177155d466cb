// SPDX-License-Identifier: Apache-2.0
#include "config/memory_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "config/fingerprint.h"
#include "config/run_config.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

v1::RunConfig ConfigWith(const std::vector<std::string>& set) {
  return LoadRunConfig({}, set, {}).value().config;
}

std::string PartsWith(const std::vector<std::string>& set) {
  return MemoryName(MemoryOf(ConfigWith(set).model()));
}

std::vector<std::string> RungsWith(const std::vector<std::string>& set) {
  std::vector<std::string> names;
  for (const MemoryParts& rung : MemoryRungs(ConfigWith(set).model()))
    names.push_back(MemoryName(rung));
  return names;
}

TEST(MemoryPartsTest, PartsAreReadInAnyOrderAndWrittenInOne) {
  EXPECT_EQ(PartsWith({"model.memory=offload_weights+ int8 +recompute"}),
            "recompute + int8 + offload_weights");
  EXPECT_EQ(PartsWith({"model.memory=whole_optimizer"}), "whole_optimizer");
  EXPECT_EQ(PartsWith({}), "fast") << "auto, before anything is chosen";
  EXPECT_EQ(PartsWith({"model.memory=fast"}), "fast");
}

TEST(MemoryPartsTest, RungsAddOnePartAfterTheOther) {
  EXPECT_THAT(
      RungsWith({"model.device=cuda"}),
      ElementsAre(
          "fast", "recompute", "recompute + shard_gradients",
          "recompute + shard_gradients + offload_optimizer",
          "recompute + shard_gradients + offload_optimizer + offload_average",
          "recompute + shard_gradients + offload_optimizer + offload_average + offload_weights"));
  EXPECT_THAT(
      RungsWith({"model.device=cuda", "model.trained=lora"}),
      ElementsAre("fast", "recompute", "recompute + int8", "recompute + int8 + guided_apart",
                  "recompute + int8 + guided_apart + offload_inputs",
                  "recompute + int8 + guided_apart + offload_inputs + offload_weights"));
  EXPECT_THAT(
      RungsWith({"model.device=cuda", "model.trained=lora", "model.lora.merge_for_rollouts=true"}),
      ElementsAre("fast", "recompute", "recompute + guided_apart",
                  "recompute + guided_apart + offload_inputs",
                  "recompute + guided_apart + offload_inputs + offload_weights"));
  EXPECT_THAT(RungsWith({}), ElementsAre("fast", "recompute")) << "on a CPU";
}

TEST(MemoryPartsTest, SmallAndSmallestAreRungs) {
  const std::string small = "model.memory=small", smallest = "model.memory=smallest";
  EXPECT_EQ(PartsWith({"model.device=cuda", small}), RungsWith({"model.device=cuda"})[3]);
  EXPECT_EQ(PartsWith({"model.device=cuda", smallest}), RungsWith({"model.device=cuda"}).back());
  EXPECT_EQ(PartsWith({"model.device=cuda", "model.trained=lora", small}), "recompute + int8");
  EXPECT_EQ(PartsWith({"model.trained=lora", smallest}), "recompute + int8") << "on a CPU";
  EXPECT_EQ(PartsWith({small}), "recompute");
}

// A key of an older version in the text of its config.resolved.yaml, by the value that it has now.
std::string OlderText(const ResolvedConfig& resolved, const std::string& model,
                      const std::string& learner) {
  const std::string text = ResolvedYaml(resolved);
  const size_t at = text.find("  memory: ");
  return absl::StrReplaceAll(
      text.substr(0, at) + model + text.substr(text.find('\n', at) + 1),
      {{"learner:\n", "learner:\n" + learner + "  join_timeout_seconds: 600  # default\n"}});
}

constexpr char kPlainModel[] =
    "  checkpoint_activations: false  # default\n  base_weights: compute  # default\n";
constexpr char kPlainLearner[] =
    "  shard_optimizer: true  # default\n  offload_optimizer: false  # default\n"
    "  offload_average: false  # default\n  shard_gradients: false  # default\n"
    "  offload_weights: false  # default\n";

// Promise: Flags of older runs are parts of their memory. Seven former keys are parts of
// model.memory. A config.resolved.yaml that has them is read as these parts, and its fingerprint
// stays.
TEST(MemoryPartsTest, AnOlderRunsConfigIsReadAsItsParts) {
  const testing::ScopedDirectory scratch;
  const std::string file = scratch.path() / kResolvedConfig;
  const ResolvedConfig run = LoadRunConfig({}, {"recipe=digits-op-grpo"}, {}).value();
  ASSERT_TRUE(WriteFileAtomically(file, OlderText(run, kPlainModel, kPlainLearner)).ok());
  for (const auto& read : {LoadRunAgain(scratch.path(), {}, {}).value().config,
                           LoadRunConfig(file, {}, {}).value().config, *LoadResolved(file)}) {
    EXPECT_EQ(read.model().memory(), "fast") << "nothing is chosen anew";
    EXPECT_EQ(FingerprintOf(read), FingerprintOf(run.config));
  }
  EXPECT_FALSE(LoadRunAgain(scratch.path(), {}, {})->chosen_memory);

  const std::string parts =
      "recompute + int8 + shard_gradients + offload_weights + whole_optimizer";
  ASSERT_TRUE(WriteFileAtomically(
                  file, OlderText(run, "  checkpoint_activations: true\n  base_weights: int8\n",
                                  "  shard_optimizer: false\n  shard_gradients: true\n"
                                  "  offload_weights: true\n"))
                  .ok());
  EXPECT_EQ(LoadResolved(file)->model().memory(), parts);
  EXPECT_EQ(LoadRunAgain(scratch.path(), {}, {})->config.model().memory(), parts);
}

TEST(MemoryPartsTest, AFormerKeyOfARunFileIsRefusedWithThePartThatItIs) {
  const auto said = [](const std::string& set) {
    return std::string(LoadRunConfig({}, {set}, {}).status().message());
  };
  EXPECT_EQ(said("learner.offload_weights=true"),
            "--set: learner.offload_weights: is a part of model.memory now: write model.memory: "
            "... + offload_weights");
  EXPECT_THAT(said("model.base_weights=int8"), HasSubstr("... + int8"));
  EXPECT_THAT(said("learner.shard_optimizer=false"), HasSubstr("... + whole_optimizer"));
  EXPECT_EQ(said("model.checkpoint_activations=false"), "") << "what it meant by default";
}

// Promise: Older runs go on.
TEST(MemoryPartsTest, OnlyInt8ChangesAFingerprint) {
  const auto with = [](const std::string& memory) {
    return ConfigWith({"model.trained=lora", "model.device=cuda", "model.memory=" + memory});
  };
  const v1::RunConfig plain = with("auto"), int8 = with("recompute + int8");
  EXPECT_EQ(FingerprintOf(plain), FingerprintOf(with("recompute + offload_weights")));
  EXPECT_TRUE(ChangedKeys(plain, with("recompute + offload_weights")).empty());
  EXPECT_THAT(FingerprintText(int8, FingerprintAge::kPresent),
              HasSubstr("  base_weights: BASE_WEIGHTS_INT8\n}\n"))
      << "the last field of its section, as it was";
  EXPECT_THAT(FingerprintText(plain, FingerprintAge::kPresent), Not(HasSubstr("base_weights")));
  EXPECT_EQ(FingerprintOf(int8), FingerprintOf(with("small"))) << "the same parts";
  const std::vector<ChangedKey> changed = ChangedKeys(plain, int8);
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_EQ(changed[0].key, "model.memory");
  EXPECT_EQ(changed[0].now, "recompute + int8");
}

TEST(MemoryPartsTest, TheNextPartIsTheFirstThatHelps) {
  const auto next = [](std::vector<std::string> set) {
    set.insert(set.begin(), "model.device=cuda");
    return NextMemoryPart(ConfigWith(set));
  };
  EXPECT_EQ(next({}), "recompute");
  EXPECT_EQ(next({"model.memory=recompute"}), "offload_optimizer") << "one rank shards nothing";
  EXPECT_EQ(next({"model.memory=recompute", "learner.ranks=2"}), "shard_gradients");
  EXPECT_EQ(next({"model.memory=recompute + offload_optimizer", "ema.enabled=false"}),
            "offload_weights");
  EXPECT_EQ(next({"model.memory=smallest"}), "");
  EXPECT_EQ(next({"model.device=cpu", "model.memory=recompute"}), "");
}

}  // namespace
}  // namespace oxbow::config
