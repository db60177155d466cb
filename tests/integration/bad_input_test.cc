// SPDX-License-Identifier: Apache-2.0
// Bad input gets one clear line with the name, the place and the fix, and a documented exit code.
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BadInputTest : public ::testing::Test {
 protected:
  std::string ConfigFile(const std::string& content) {
    const std::filesystem::path path = scratch_.path() / "bad.yaml";
    std::ofstream(path) << content;
    return path.string();
  }
  Outcome Train(const std::string& config, std::vector<std::string> extra = {}) {
    return Run("train", config, std::move(extra));
  }
  Outcome Run(const std::string& command, const std::string& config,
              std::vector<std::string> extra) {
    const std::string source = OXBOW_SOURCE_DIR;
    std::vector<std::string> arguments = {
        command, config,
        "--set", "run.directory=" + scratch_.path().string(),
        "--set", "model.path=" + source + "/models/digits",
        "--set", "prompts.train=" + source + "/configs/prompts/digits_train.txt",
        "--set", "prompts.eval=" + source + "/configs/prompts/digits_eval.txt"};
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    return RunOxbow(arguments);
  }
  const std::string digits_ =
      std::string(OXBOW_SOURCE_DIR) + "/configs/recipes/digits-op-grpo.yaml";
  ScopedDirectory scratch_;
};

// Promise: A bad config does not start. Unknown keys, missing or truncated models and unknown
// rewards end with one line and its exit code (docs/formats.md).
TEST_F(BadInputTest, UnknownKeyNamesFileLineAndNearestName) {
  const Outcome outcome = Train(ConfigFile("run:\n  name: x\nbatch:\n  group_sise: 8\n"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.message,
              AllOf(HasSubstr("bad.yaml:4"), HasSubstr("group_sise"), HasSubstr("group_size")));
}

// Promise: Staleness is bounded.
TEST_F(BadInputTest, ImpossibleStalenessIsRefusedBeforeAnythingStarts) {
  const Outcome outcome = Train(
      digits_, {"--set", "off_policy.publish_every=4", "--set", "off_policy.staleness_max=1"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.message, HasSubstr("off_policy.staleness_max"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.path() / "digits" / "replay"));
}

// Promise: A bad config does not start.
TEST_F(BadInputTest, MissingModelExitsWithDataError) {
  const Outcome outcome = Train(digits_, {"--set", "model.path=/nowhere/model"});
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.message, HasSubstr("/nowhere/model"));
}

// All that is wrong is said at once: people wait for a model's download.
TEST_F(BadInputTest, WithoutItsModelARunIsCheckedInAllElse) {
  const std::string models = std::string(OXBOW_SOURCE_DIR) + "/models/";
  const Outcome outcome =
      Run("validate", digits_,
          {"--set", "model.path=" + models + "digit", "--set", "reward.endpoints=[127.0.0.1:1]",
           "--set", "reward.terms=[{name: elsewhere, weight: 1}, {name: digits_graded, weight: 1}]",
           "--set", "reward.observed=[]", "--set", "reward.scorers=[{name: digits_graded}]"});
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(
      outcome.message,
      AllOf(HasSubstr("digit: no such directory; did you mean `" + models + "digits`?"),
            HasSubstr("oxbow validate: "), HasSubstr("digits_graded"), HasSubstr("127.0.0.1:1")));
}

TEST_F(BadInputTest, GpusThatARunDoesNotUseAreSaid) {
  EXPECT_THAT(Run("validate", digits_, {"--gpus", "8x80"}).message,
              HasSubstr("--gpus 8x80: this run uses no GPU: model.device is cpu"));
}

// Promise: A bad config does not start.
TEST_F(BadInputTest, TruncatedModelExitsWithDataErrorAndNamesTheFile) {
  const std::filesystem::path model = scratch_.path() / "model";
  std::filesystem::copy(std::string(OXBOW_SOURCE_DIR) + "/models/digits", model,
                        std::filesystem::copy_options::recursive);
  const std::filesystem::path weights =
      model / "transformer" / "diffusion_pytorch_model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) / 2);
  const Outcome outcome = Train(digits_, {"--set", "model.path=" + model.string()});
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.message, HasSubstr("diffusion_pytorch_model.safetensors"));
}

// Promise: A bad config does not start.
TEST_F(BadInputTest, UnknownRewardIsRefused) {
  const Outcome outcome = Train(digits_, {"--set", "reward.observed=[no_such_reward]"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.message, HasSubstr("no_such_reward"));
}

// Promise: A bad config does not start.
TEST_F(BadInputTest, ValidateRefusesWhatTrainRefusesAndNothingElse) {
  for (const char* setting : {"sampling.width=21", "batch.group_size=1000000000",
                              "model.device=gpu", "learner.ranks=5", "sampling.steps=1"}) {
    const Outcome train = Train(digits_, {"--set", setting});
    const Outcome validate = Run("validate", digits_, {"--set", setting});
    EXPECT_EQ(train.exit_code, 2) << setting;
    EXPECT_EQ(validate.exit_code, 2) << setting;
    const std::string reason = validate.message.substr(0, validate.message.find('\n'));
    EXPECT_THAT(train.message, HasSubstr(reason)) << setting;
  }
  const Outcome silly =
      Run("validate", digits_,
          {"--set", "optimizer.learning_rate=100", "--set", "services.rollout_workers=5000"});
  EXPECT_EQ(silly.exit_code, 0);
  EXPECT_THAT(silly.message, AllOf(HasSubstr("optimizer.learning_rate: "),
                                   HasSubstr("batch.rows_per_pass: the processes of the run take"),
                                   HasSubstr("(warning)")));
  const Outcome wide =
      Run("validate", digits_, {"--set", "model.trained=lora", "--set", "model.lora.rank=100000"});
  EXPECT_EQ(wide.exit_code, 0);
  EXPECT_THAT(wide.message, AllOf(HasSubstr("model.lora.rank: "), HasSubstr("got 100000"),
                                  HasSubstr("(warning)")));
  const Outcome good = Run("validate", digits_, {});
  EXPECT_EQ(good.exit_code, 0) << good.message;
}

TEST_F(BadInputTest, ALossThatIsNotFiniteEndsTheRunAndSaysWhatToLower) {
  const Outcome outcome =
      Train(digits_, {"--set", "optimizer.learning_rate=1e30", "--set", "run.steps=5", "--set",
                      "batch.groups=4", "--set", "eval.images=8"});
  EXPECT_EQ(outcome.exit_code, 6) << outcome.message;
  EXPECT_THAT(outcome.message,
              HasSubstr("(lower optimizer.learning_rate or optimizer.grad_norm_max)"));
  const size_t reason = outcome.message.rfind("\nlearner: ");
  EXPECT_TRUE(reason == std::string::npos) << "it is the last line: " << outcome.message;
}

// Promise: A bad config does not start.
TEST_F(BadInputTest, AnExistingRunIsNotOverwritten) {
  std::filesystem::create_directories(scratch_.path() / "digits");
  std::ofstream(scratch_.path() / "digits" / "metrics.jsonl") << "{\"step\":1}\n";
  const Outcome outcome = Train(digits_, {"--set", "run.name=digits"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.message, HasSubstr("--resume"));
  EXPECT_EQ(std::filesystem::file_size(scratch_.path() / "digits" / "metrics.jsonl"), 11u);
}

}  // namespace
}  // namespace oxbow::testing
