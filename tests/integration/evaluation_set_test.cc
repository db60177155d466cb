// SPDX-License-Identifier: Apache-2.0
// `oxbow eval --set` from end to end, on the digits model: measured, exported, read back, compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/scripted_rewards.h"
#include "tests/integration/training_run.h"
#include "tests/testing/process.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kSource = OXBOW_SOURCE_DIR;
const std::string kModel = kSource + "/models/digits";

class EvaluationSetCommandTest : public ::testing::Test {
 protected:
  EvaluationSetCommandTest() {
    File("prompts.jsonl",
         "{\"prompt\": \"text 473\", \"tag\": \"odd\"}\n{\"prompt\": \"text 120\", \"tag\": "
         "\"even\"}\n"
         "{\"prompt\": \"text 905\", \"tag\": \"odd\"}\n");
    set_ = File("mine.yaml",
                "per_prompt: 2\nseeds: [3, 4]\nrewards: [{name: digits_ocr}, {name: brightness}]\n"
                "group_by: tag\nreport: groups\n");
  }
  std::string File(const std::string& name, const std::string& content) {
    std::ofstream(scratch_.path() / name) << content;
    return (scratch_.path() / name).string();
  }
  std::string Path(const std::string& name) { return (scratch_.path() / name).string(); }
  Outcome Eval(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"eval", "--set", set_, "--prompts",
                                          Path("prompts.jsonl")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunOxbow(arguments);
  }
  std::string set_;
  ScopedDirectory scratch_;
};

// Promise: Numbers of a report are those of its pictures.
TEST_F(EvaluationSetCommandTest, PicturesThatWereExportedMeasureAsTheModelThatDrewThem) {
  const Outcome drawn = Eval({"--model", kModel, "--json"});
  ASSERT_EQ(drawn.exit_code, 0) << drawn.message;
  const Outcome exported =
      Eval({"--model", kModel, "--export-images", Path("out"), "--layout", "geneval"});
  ASSERT_EQ(exported.exit_code, 0) << exported.message;
  EXPECT_TRUE(std::filesystem::exists(scratch_.path() / "out/00002/samples/0003.png"));
  EXPECT_THAT(*ReadFile(scratch_.path() / "out/00001/metadata.jsonl"), HasSubstr("text 120"));
  const Outcome read = Eval({"--images", Path("out"), "--json"});
  ASSERT_EQ(read.exit_code, 0) << read.message;
  const auto one = nlohmann::json::parse(drawn.output), other = nlohmann::json::parse(read.output);
  EXPECT_EQ(one["rows"], other["rows"]);
  ASSERT_EQ(one["rows"].size(), 6u);  // Two rewards: odd, even, overall.
  EXPECT_EQ(one["rows"][0]["identity"], "digits_ocr/1");
  EXPECT_EQ(one["rows"][2]["group"], "overall");
  EXPECT_NEAR(one["rows"][2]["value"]["mean"].get<double>(),
              (one["rows"][0]["value"]["mean"].get<double>() +
               one["rows"][1]["value"]["mean"].get<double>()) /
                  2,
              1e-12);
}

TEST_F(EvaluationSetCommandTest, AModelAgainstItselfHasNoDifference) {
  const Outcome outcome = Eval({"--model", kModel, "--against", kModel, "--bootstrap-seed", "9",
                                "--html", Path("report.html")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.message;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("bootstrap seed 9"), HasSubstr("0 [0, 0]")));
  EXPECT_THAT(*ReadFile(scratch_.path() / "report.html"), HasSubstr("<td>digits_ocr/1</td>"));
}

TEST_F(EvaluationSetCommandTest, BadInputIsOneLineWithItsExitCode) {
  const auto refused = [&](const std::vector<std::string>& more, int exit_code) {
    const Outcome outcome = Eval(more);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.message;
    EXPECT_EQ(std::count(outcome.message.begin(), outcome.message.end(), '\n'), 1)
        << outcome.message;
    return outcome.message;
  };
  EXPECT_THAT(refused({}, 2), HasSubstr("give one of --run, --model and --images"));
  EXPECT_THAT(refused({"--images", Path("absent")}, 4), HasSubstr("absent/00000/samples/0000.png"));
  EXPECT_THAT(refused({"--model", kModel, "--key", "ocr.variant=x"}, 2),
              HasSubstr("the set has no reward ocr"));
  EXPECT_THAT(refused({"--model", kModel, "--export-images", Path("x"), "--layout", "hpsv2"}, 2),
              HasSubstr("one picture of each prompt, the set has 4"));
  set_ = File("other.yaml", "rewards: [{name: taste_of_lemons}]\n");
  EXPECT_THAT(refused({"--model", kModel}, 2), HasSubstr("taste_of_lemons"));
  set_ = File("broken.yaml", "rewards: [{name: brightness}\n");
  EXPECT_THAT(refused({"--model", kModel}, 2), HasSubstr("broken.yaml"));
  set_ = Path("absent.yaml");
  EXPECT_THAT(refused({"--model", kModel}, 4), HasSubstr("absent.yaml"));
}

// A picture that a reward cannot score is counted, and the report still comes.
// Promise: Numbers of a report are those of its pictures.
TEST_F(EvaluationSetCommandTest, AMissingScoreIsExitCodeFourAfterTheReport) {
  ASSERT_EQ(Eval({"--model", kModel, "--export-images", Path("out")}).exit_code, 0);
  File("prompts.jsonl",
       "{\"prompt\": \"a red cube\", \"tag\": \"odd\"}\n{\"prompt\": \"text 120\", \"tag\": "
       "\"odd\"}\n");
  const Outcome outcome = Eval({"--images", Path("out")});
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.message, HasSubstr("4 scores are missing"));
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("4 pictures have no score"), HasSubstr("brightness/1")));
}

// A picture's `style` is its brightness.
ScriptedRewards StyleServer() {
  return ScriptedRewards({"style"}, [](const std::string&, const v1::Image& image) {
    return ScriptedRewards::Answer{.value = Brightness(image), .item_error = {}, .call_error = {}};
  });
}

TEST_F(EvaluationSetCommandTest, RewardsOfServersElsewhereAreMeasured) {
  ASSERT_EQ(Eval({"--model", kModel, "--export-images", Path("out")}).exit_code, 0);
  const Outcome here = Eval({"--images", Path("out"), "--json"});
  ASSERT_EQ(here.exit_code, 0) << here.message;
  auto server = Process::Start(
      {.argv = {BinaryPath("reward_server"), "--rewards", "digits_ocr"}, .environment = {}});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto ready = (*server)->WaitForLine("READY", absl::Seconds(60));
  ASSERT_TRUE(ready.ok()) << ready.status();
  const ScriptedRewards style = StyleServer();
  set_ = File("elsewhere.yaml",
              "per_prompt: 2\nseeds: [3, 4]\ngroup_by: tag\nreport: groups\nrewards: [{name: "
              "digits_ocr}, {name: brightness, scorer: brightness}, {name: style}]\n");
  const std::string endpoint = ValueOf(*ready, "grpc");
  const Outcome there = Eval(
      {"--images", Path("out"), "--json", "--endpoint", endpoint, "--endpoint", style.endpoint()});
  ASSERT_EQ(there.exit_code, 0) << there.message;
  const auto one = nlohmann::json::parse(here.output)["rows"];
  const auto other = nlohmann::json::parse(there.output)["rows"];
  ASSERT_EQ(one.size(), 6u);  // Two rewards: odd, even, overall.
  ASSERT_EQ(other.size(), 9u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(other[i], one[i]);
  for (size_t i = 3; i < 6; ++i) {  // Grey pictures: brightness is what the server of style says.
    EXPECT_NEAR(other[i + 3]["value"]["mean"].get<double>(), one[i]["value"]["mean"].get<double>(),
                1e-6);
  }
  const Outcome absent = Eval({"--images", Path("out"), "--endpoint", endpoint});
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.message, HasSubstr("style"));
  (*server)->Kill(SIGKILL);
  ASSERT_TRUE((*server)->WaitExit(absl::Seconds(60)).ok());
  const Outcome silent = Eval({"--images", Path("out"), "--endpoint", endpoint});
  EXPECT_EQ(silent.exit_code, 3) << silent.message;
}

TEST_F(EvaluationSetCommandTest, ARunIsMeasuredByItsOwnServers) {
  const ScriptedRewards style = StyleServer();
  TrainingRun run({"run.steps=1", "eval.every=0", "reward.endpoints=[\"" + style.endpoint() + "\"]",
                   "reward.terms=[{name: style, weight: 1}]", "reward.observed=[]"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  set_ = File("style.yaml", "rewards: [{name: style}, {name: digits_ocr}]\n");
  const Outcome outcome = Eval({"--run", run.directory().string(), "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.message;
  const auto rows = nlohmann::json::parse(outcome.output)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["reward"], "style");
  EXPECT_GT(rows[0]["value"]["mean"].get<double>(), 0);
  EXPECT_EQ(rows[1]["identity"], "digits_ocr/1");
}

}  // namespace
}  // namespace oxbow::testing
