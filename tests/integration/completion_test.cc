// SPDX-License-Identifier: Apache-2.0
// The words that a shell offers after `source <(oxbow completion bash)`.
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/testing/process.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr absl::Duration kShellPatience = absl::Seconds(20);

class CompletionTest : public ::testing::Test {
 protected:
  std::string Script(const std::string& shell) {
    const std::filesystem::path path = scratch_.path() / absl::StrCat("oxbow.", shell);
    if (std::filesystem::exists(path)) return path.string();
    const Outcome outcome = RunOxbow({"completion", shell});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.message;
    std::ofstream(path) << outcome.output;
    return path.string();
  }

  // The words that bash offers for the last one, which a person has begun to type.
  std::vector<std::string> Offered(const std::vector<std::string>& words) {
    std::string quoted;
    for (const std::string& word : words) absl::StrAppend(&quoted, " '", word, "'");
    return Lines("/bin/bash", absl::StrCat("source ", Script("bash"), " && COMP_WORDS=(", quoted,
                                           ") && COMP_CWORD=", words.size() - 1,
                                           " && { _oxbow; printf '%s\\n' \"${COMPREPLY[@]}\"; }"));
  }

  std::vector<std::string> Lines(const std::string& shell, const std::string& command) {
    const auto process = Process::Start({.argv = {shell, "-c", command}, .environment = {}});
    EXPECT_TRUE(process.ok()) << process.status();
    const absl::StatusOr<int> code = (*process)->WaitExit(kShellPatience);
    EXPECT_TRUE(code.ok() && *code == 0) << code.status() << (*process)->error_output();
    EXPECT_EQ((*process)->error_output(), "");
    std::vector<std::string> lines;
    std::istringstream text((*process)->output());
    for (std::string line; std::getline(text, line);) {
      if (!line.empty()) lines.push_back(line);
    }
    return lines;
  }

  const ScopedDirectory scratch_;
};

TEST_F(CompletionTest, OffersTheCommandsThatBeginSo) {
  EXPECT_THAT(Offered({"oxbow", "comp"}), ElementsAre("compare", "compbench", "completion"));
  EXPECT_THAT(Offered({"oxbow", ""}), IsSupersetOf({"train", "report", "replay"}));
  EXPECT_THAT(Offered({"oxbow", "replay", "l"}), ElementsAre("list"));
}

TEST_F(CompletionTest, OffersTheFlagsOfTheCommandThatIsTyped) {
  EXPECT_THAT(Offered({"oxbow", "train", "run.yaml", "--res"}),
              ElementsAre("--resume", "--resume-if-any"));
  EXPECT_THAT(Offered({"oxbow", "replay", "list", "--"}),
              AllOf(Contains("--run"), Not(Contains("--resume"))));
  EXPECT_THAT(Offered({"oxbow", "train", "--name", "list", "--ov"}), ElementsAre("--overwrite"));
}

TEST_F(CompletionTest, OffersTheValuesOfAFlagOrLeavesThemToFiles) {
  EXPECT_THAT(Offered({"oxbow", "export", "runs/a", "--format", "d"}), ElementsAre("diffusers"));
  EXPECT_THAT(Offered({"oxbow", "completion", "z"}), ElementsAre("zsh"));
  EXPECT_THAT(Offered({"oxbow", "status", "--run", ""}), IsEmpty()) << "no flag is a value";
}

TEST_F(CompletionTest, ZshReadsItsScript) {
  const char* const zsh = "/usr/bin/zsh";
  if (!std::filesystem::exists(zsh)) GTEST_SKIP() << "skipped: zsh is not installed";
  const std::string script = Script("zsh");
  EXPECT_THAT(Lines(zsh, absl::StrCat("zsh -n ", script)), IsEmpty());
  EXPECT_THAT(Lines(zsh, absl::StrCat("autoload -U compinit && compinit -D -u && source ", script,
                                      " && COMP_WORDS=(oxbow comp) && COMP_CWORD=1 && whence -w "
                                      "_oxbow")),
              ElementsAre("_oxbow: function"));
}

}  // namespace
}  // namespace oxbow::testing
