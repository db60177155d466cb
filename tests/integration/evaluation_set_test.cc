// `oxbow eval --set` from end to end, on the digits model: measured, exported, read back, compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/integration/oxbow_command.h"
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

}  // namespace
}  // namespace oxbow::testing
