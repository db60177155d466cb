// SPDX-License-Identifier: Apache-2.0
// The output of `oxbow train` on a real terminal, and where there is none.
#include <algorithm>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/pseudo_terminal.h"
#include "tests/testing/process.h"
#include "tests/testing/run_files.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kErasure[] = "\r\033[K";
constexpr absl::Duration kPatience = absl::Seconds(60);

class TerminalTest : public ::testing::Test {
 protected:
  // A run of three steps with few images and an evaluation after each.
  std::vector<std::string> Arguments(const std::vector<std::string>& more = {}) const {
    const std::string source = OXBOW_SOURCE_DIR;
    std::vector<std::string> settings = {
        "run.name=run",
        "run.directory=" + scratch_.path().string(),
        "run.steps=3",
        "model.path=" + source + "/models/digits",
        "prompts.train=" + source + "/configs/prompts/digits_train.txt",
        "prompts.eval=" + source + "/configs/prompts/digits_eval.txt",
        "batch.groups=2",
        "batch.group_size=4",
        "eval.images=8",
        "eval.grid_images=8",
        "eval.every=1"};
    settings.insert(settings.end(), more.begin(), more.end());
    std::vector<std::string> arguments = {"train", source + "/configs/recipes/digits-op-grpo.yaml"};
    for (const std::string& setting : settings) {
      arguments.emplace_back("--set");
      arguments.push_back(setting);
    }
    return arguments;
  }

  TerminalSession Train(uint16_t columns, const std::vector<std::string>& more = {}) {
    std::vector<std::string> argv = {BinaryPath("oxbow")};
    for (std::string& word : Arguments(more)) argv.push_back(std::move(word));
    absl::StatusOr<TerminalSession> session = RunInTerminal(argv, columns, kPatience);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.value_or(TerminalSession{});
  }

  // "step 2 " for each line of metrics.jsonl with an evaluation.
  std::vector<std::string> EvaluatedSteps() const {
    std::vector<std::string> steps;
    for (const nlohmann::json& line : RunFiles(scratch_.path() / "run").metrics()) {
      if (line.contains("eval/reward_mean")) {
        steps.push_back(absl::StrCat("step ", line["step"].get<int>(), " "));
      }
    }
    return steps;
  }

  const ScopedDirectory scratch_;
};

std::vector<std::string> LinesWith(const std::vector<std::string>& lines,
                                   const std::string& start) {
  std::vector<std::string> found;
  for (const std::string& line : lines) {
    if (absl::StartsWith(line, start)) found.push_back(line);
  }
  return found;
}

size_t IndexOf(const std::vector<std::string>& lines, const std::string& start) {
  for (size_t at = 0; at < lines.size(); ++at) {
    if (absl::StartsWith(lines[at], start)) return at;
  }
  return lines.size();
}

// The line that is rewritten has never become one that stays.
bool IsBar(const std::string& line) { return absl::StartsWith(line, "["); }

// A path is one word and is not broken; neither is a warning about the machine that runs the test.
bool MayBeWide(const std::string& line) {
  return absl::StrContains(line, "/oxbow_test_") || absl::StrContains(line, "warning: machine/");
}

class TerminalWidthTest : public TerminalTest, public ::testing::WithParamInterface<uint16_t> {};

// Promise: A terminal shows a run whole. `oxbow train` rewrites one line and breaks none of its own
// at the terminal's edge, except paths. Evaluations stay, a line each. The summary is last, and of
// a run that fails, the reason. Without a terminal there is no escape code.
TEST_P(TerminalWidthTest, LinesFitEvaluationsStayAndTheSummaryComesLast) {
  const TerminalSession session = Train(GetParam());
  ASSERT_EQ(session.exit_code, 0) << session.text;
  const Screen screen = ScreenOf(session.text);
  ASSERT_FALSE(screen.rewritten.empty()) << session.text;
  for (const std::string& line : screen.rewritten) {
    EXPECT_LT(WidthOf(line), GetParam()) << line;
    EXPECT_THAT(line, ::testing::AnyOf(HasSubstr("step "), ::testing::StartsWith("starting: ")));
  }
  for (const std::string& line : screen.lines) {
    EXPECT_FALSE(IsBar(line)) << line;
    EXPECT_THAT(line, Not(HasSubstr("\033"))) << "an escape code that is no erasure";
    if (MayBeWide(line)) continue;
    EXPECT_LE(WidthOf(line), GetParam()) << line;
  }
  const std::vector<std::string> steps = EvaluatedSteps();
  EXPECT_EQ(steps.size(), 4u);
  for (const std::string& step : steps) {
    const std::vector<std::string> found = LinesWith(screen.lines, step);
    ASSERT_EQ(found.size(), 1u) << step << session.text;
    EXPECT_THAT(found[0], HasSubstr("held-out 0."));
  }
  const size_t summary = IndexOf(screen.lines, "learning ");
  ASSERT_LT(summary, screen.lines.size()) << session.text;
  EXPECT_GT(summary, IndexOf(screen.lines, steps.back()));
  EXPECT_GT(IndexOf(screen.lines, "report "), summary);
  EXPECT_LT(screen.rewritten_at.back(), summary);
  EXPECT_LT(session.text.rfind(kErasure), session.text.find("learning "));
}

INSTANTIATE_TEST_SUITE_P(Widths, TerminalWidthTest, ::testing::Values(60, 80, 200));

// Promise: A terminal shows a run whole.
TEST_F(TerminalTest, WithoutATerminalThereIsNoEscapeCode) {
  const Outcome outcome = RunOxbow(Arguments());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.message;
  for (const std::string& text : {outcome.output, outcome.message}) {
    EXPECT_THAT(text, Not(HasSubstr("\033")));
    EXPECT_THAT(text, Not(HasSubstr("\r")));
  }
  const std::vector<std::string> lines = absl::StrSplit(outcome.output, '\n');
  for (const std::string& step : EvaluatedSteps()) {
    EXPECT_EQ(LinesWith(lines, step + "  ").size(), 1u) << step << outcome.output;
  }
  EXPECT_LT(IndexOf(lines, "learning "), IndexOf(lines, "report "));
}

// Promise: A terminal shows a run whole.
TEST_F(TerminalTest, AFailureIsTheLastThingSaid) {
  const TerminalSession session = Train(80, {"optimizer.learning_rate=1e30"});
  EXPECT_EQ(session.exit_code, 6) << session.text;
  const Screen screen = ScreenOf(session.text);
  ASSERT_FALSE(screen.lines.empty());
  EXPECT_THAT(screen.lines.back(), ::testing::StartsWith("oxbow train: learner ended"));
  EXPECT_THAT(screen.lines.back(), HasSubstr("lower optimizer.learning_rate"));
  EXPECT_FALSE(screen.rewritten.empty());
  // The log says that the learner is started again, and does not say it behind the bar.
  EXPECT_THAT(session.text, HasSubstr("child ended and is started again"));
  for (const std::string& line : screen.lines) EXPECT_FALSE(IsBar(line)) << line;
  for (const char* success : {"learning ", "report ", "weights ", "curves "}) {
    EXPECT_EQ(IndexOf(screen.lines, success), screen.lines.size()) << success << session.text;
  }
}

}  // namespace
}  // namespace oxbow::testing
