// SPDX-License-Identifier: Apache-2.0
// GenEval with random weights in a training run, and as an evaluation set: the parts work together.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::SizeIs;

const std::string kSource = OXBOW_SOURCE_DIR;
const std::string kModel = kSource + "/models/compose";
const std::string kClip = kSource + "/tests/golden/scorers/clip";

// Prompts of the compose world, with metadata of things that the random detector sees in its
// pictures: 6 to 9 boats, 5 to 9 ovens.
std::string Prompts() {
  std::string lines;
  const char* const texts[] = {"blue cross above blue disc", "red square left of blue disc",
                               "blue disc above red square", "blue cross above red disc"};
  for (int i = 0; i < 4; ++i) {
    const nlohmann::json demand = {{"class", i % 2 == 0 ? "boat" : "oven"}, {"count", 7}};
    lines += nlohmann::json{{"prompt", texts[i]},
                            {"tag", i % 2 == 0 ? "single_object" : "two_object"},
                            {"include", {demand}}}
                 .dump() +
             "\n";
  }
  return lines;
}

class GenevalRunTest : public ::testing::Test {
 protected:
  GenevalRunTest() {
    prompts_ = Path("prompts.jsonl");
    std::ofstream(prompts_) << Prompts();
    const std::string golden = kSource + "/tests/golden/scorers/geneval/3/";
    std::filesystem::create_directories(Path("detector"));
    for (const char* const file : {"config.json", "graph.json.gz"}) {
      std::filesystem::copy_file(golden + file, Path("detector/") + file);
    }
    const Outcome converted = RunOxbow(
        {"convert-weights", golden + "checkpoint.pth", Path("detector/model.safetensors")});
    EXPECT_EQ(converted.exit_code, 0) << converted.message;
    EXPECT_THAT(converted.output, HasSubstr("became those of transformers"));
  }
  std::string Path(const std::string& name) { return (scratch_.path() / name).string(); }

  Outcome Eval(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"eval", "--set", "geneval", "--prompts", prompts_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunOxbow(arguments);
  }
  std::vector<std::string> Keys() {
    return {"--key", "geneval.model=" + Path("detector"), "--key", "geneval.head=" + kClip};
  }
  // A run of three steps.
  TrainingRun Train(const std::vector<std::string>& services) {
    std::vector<std::string> overrides = {
        "model.path=" + kModel,
        "prompts.train=" + prompts_,
        "prompts.eval=" + prompts_,
        "run.steps=3",
        "run.deterministic=true",
        "eval.every=3",
        "eval.images=8",
        "batch.groups=2",
        "batch.group_size=4",
        "reward.terms=[{name: geneval, weight: 1}]",
        "reward.observed=[]",
        "reward.scorers=[{name: geneval, model: " + Path("detector") + ", head: " + kClip + "}]"};
    overrides.insert(overrides.end(), services.begin(), services.end());
    return TrainingRun(overrides, {}, "compose-high-noise");
  }

  ScopedDirectory scratch_;
  std::string prompts_;
};

TEST_F(GenevalRunTest, ItsScoreTrainsARun) {
  TrainingRun one = Train({});
  // Groups come in another order, and each server scores a part of them.
  TrainingRun many = Train(
      {"services.rollout_workers=2", "services.reward_servers=2", "services.groups_in_flight=1"});
  for (TrainingRun* run : {&one, &many}) {
    ASSERT_EQ(run->WaitExit().value(), 0) << run->process().error_output();
    EXPECT_THAT(run->Series("train/samples_unscored"), AllOf(SizeIs(3), Each(0)));
    // Where the detector finds nothing, every sample has 0, and where it finds one thing, the same.
    EXPECT_THAT(run->Series("train/reward_std"), AllOf(SizeIs(3), Each(Gt(0.01))));
    EXPECT_THAT(run->Series("train/reward_mean"), Each(AllOf(Gt(0), Lt(1))));
    EXPECT_THAT(run->Series("eval/reward_mean"), Each(AllOf(Gt(0), Lt(1))));
  }
  for (const char* key : {"train/reward_mean", "train/loss", "eval/reward_mean"}) {
    EXPECT_EQ(one.Series(key), many.Series(key)) << key;
  }
  EXPECT_EQ(one.FinalWeights(), many.FinalWeights());
}

TEST_F(GenevalRunTest, ItsSetMeasuresByTagAndItsFoldersMeasureTheSame) {
  auto drawn_flags = Keys();
  drawn_flags.insert(drawn_flags.end(), {"--model", kModel, "--json"});
  const Outcome drawn = Eval(drawn_flags);
  ASSERT_EQ(drawn.exit_code, 0) << drawn.message;
  const auto report = nlohmann::json::parse(drawn.output);
  ASSERT_EQ(report["rows"].size(), 3u);
  EXPECT_EQ(report["rows"][0]["group"], "single_object");
  EXPECT_EQ(report["rows"][2]["group"], "overall");
  EXPECT_THAT(report["rows"][0]["identity"].get<std::string>(), HasSubstr("geneval/official/1"));

  auto export_flags = Keys();
  export_flags.insert(export_flags.end(), {"--model", kModel, "--export-images", Path("out")});
  ASSERT_EQ(Eval(export_flags).exit_code, 0);
  EXPECT_THAT(*ReadFile(Path("out/00001/metadata.jsonl")), HasSubstr("two_object"));
  EXPECT_TRUE(std::filesystem::exists(Path("out/00003/samples/0003.png")));
  auto read_flags = Keys();
  read_flags.insert(read_flags.end(), {"--images", Path("out"), "--json"});
  const Outcome read = Eval(read_flags);
  ASSERT_EQ(read.exit_code, 0) << read.message;
  EXPECT_EQ(nlohmann::json::parse(read.output)["rows"], report["rows"]);
}

TEST_F(GenevalRunTest, AMissingDirectoryIsOneLine) {
  const Outcome outcome = Eval({"--model", kModel});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.message, HasSubstr("reward geneval needs the key `model`"));
  EXPECT_EQ(std::count(outcome.message.begin(), outcome.message.end(), '\n'), 1);
}

}  // namespace
}  // namespace oxbow::testing
