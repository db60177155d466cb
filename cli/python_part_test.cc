// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/process.h"
#include "cli/child_program.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;

class PythonPartTest : public ::testing::Test {
 protected:
  // A Python that has all packages or none, notes its words and ends with 7.
  std::string Python(bool has_them) {
    const std::string path = (scratch_.path() / (has_them ? "full" : "bare")).string();
    std::ofstream(path) << "#!/bin/sh\ncase \"$2\" in *find_spec*) exit " << (has_them ? 0 : 1)
                        << ";; esac\nshift 2\necho \"$@\" of $OXBOW_PROGRAM > " << path
                        << ".words\nexit 7\n";
    chmod(path.c_str(), 0755);
    return path;
  }
  absl::Status Become(const std::string& python) {
    return BecomePythonPart(
        {.module = "oxbow.convert.weights", .needs = {"torch", "numpy"}, .extra = "convert"},
        {"a b", "c"}, {"OXBOW_PYTHON=" + python});
  }

  const testing::ScopedDirectory scratch_;
};

TEST_F(PythonPartTest, TheProcessBecomesTheModuleWithItsExitCode) {
  const std::string python = Python(true);
  EXPECT_EXIT(std::cerr << Become(python), ::testing::ExitedWithCode(7), "");
  EXPECT_EQ(*ReadFile(python + ".words"),
            absl::StrCat("oxbow.convert.weights a b c of ", ExecutablePath()->string(), "\n"));
}

TEST_F(PythonPartTest, APythonThatIsNamedAndDoesNotHaveItIsSaidAndNoOtherIsTried) {
  for (const std::string& python : {Python(false), std::string("/nowhere/python3")}) {
    const absl::Status status = Become(python);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(
        std::string(status.message()),
        ::testing::AllOf(HasSubstr("OXBOW_PYTHON=" + python + " does not have it"),
                         HasSubstr("torch, numpy: pip install '"), HasSubstr("python[convert]'")));
  }
}

TEST_F(PythonPartTest, FilesOfTheWorkingDirectoryAreNotRun) {
  const std::string ran = (scratch_.path() / "ran").string();
  for (const char* module : {"argparse.py", "runpy.py", "importlib.py", "json.py"}) {
    std::ofstream(scratch_.path() / module) << "open('" << ran << "', 'w')\n";
  }
  const auto former = std::filesystem::current_path();
  std::filesystem::current_path(scratch_.path());
  const int printed = open("/dev/null", O_WRONLY);
  const auto call = FindPythonPart({.module = "json.tool", .needs = {}, .extra = {}}, {"--help"},
                                   {absl::StrCat("PATH=", std::getenv("PATH"))});
  ASSERT_TRUE(call.ok()) << call.status();
  const auto code =
      RunProgram(call->python, call->words, call->environment, /*quiet=*/false, printed);
  std::filesystem::current_path(former);
  close(printed);
  EXPECT_EQ(code.value(), 0);
  EXPECT_FALSE(std::filesystem::exists(ran));
}

}  // namespace
}  // namespace oxbow::cli
