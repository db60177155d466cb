// SPDX-License-Identifier: Apache-2.0
// The command as a user calls it: exit codes, and what it writes or leaves alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>

#include "base/exit_code.h"
#include "base/file.h"
#include "cli/commands.h"
#include "config/run_config.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kPublished =
    OXBOW_SOURCE_DIR "/src/config/import/testdata/sd3_5_geneval_cps.yaml";

class ImportConfigTest : public ::testing::Test {
 protected:
  // The exit code; what was said on stderr is in said_.
  int Run(const std::string& words) {
    CLI::App app;
    int exit_code = -1;
    AddImportConfig(app, exit_code);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    app.parse("import-config flow-factory " + words);
    said_ = ::testing::internal::GetCapturedStderr();
    printed_ = ::testing::internal::GetCapturedStdout();
    return exit_code;
  }
  // The published file with a line more.
  std::string With(const std::string& line) {
    const std::string path = scratch_.path() / "theirs.yaml";
    std::ofstream(path) << ReadFile(kPublished).value() << line << "\n";
    return path;
  }

  testing::ScopedDirectory scratch_;
  const std::string out_ = scratch_.path() / "ours.yaml";
  std::string said_;
  std::string printed_;
};

TEST_F(ImportConfigTest, WritesARunAndSaysWhatDiffers) {
  EXPECT_EQ(Run(kPublished + " --out " + out_), kExitOk);
  EXPECT_THAT(said_, AllOf(HasSubstr("sd3_5_geneval_cps.yaml:15: model.model_name_or_path"),
                           HasSubstr("(differs)")));
  EXPECT_EQ(printed_, "");
  const auto read = config::LoadRunConfig(out_, {}, {});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->config.batch().group_size(), 18u);
  EXPECT_EQ(Run(kPublished), kExitOk);
  EXPECT_EQ(printed_, ReadFile(out_).value());
}

TEST_F(ImportConfigTest, NothingIsWrittenOverOrFromWhatCannotBeCarriedOver) {
  EXPECT_EQ(Run(With("extra: 1") + " --out " + out_), kExitUsage);
  EXPECT_THAT(said_, AllOf(HasSubstr("theirs.yaml:46: extra: not a key"),
                           HasSubstr("1 keys are not known")));
  EXPECT_FALSE(std::filesystem::exists(out_));
  EXPECT_EQ(Run(With("machine_rank: many") + " --out " + out_), kExitUsage);
  EXPECT_EQ(Run(With("mixed_precision: [") + " --out " + out_), kExitUsage);
  EXPECT_EQ(Run("/nowhere/a.yaml --out " + out_), kExitData);
  EXPECT_FALSE(std::filesystem::exists(out_));
  EXPECT_EQ(Run(With("extra: 1") + " --allow-unknown --out " + out_), kExitOk);
  EXPECT_THAT(ReadFile(out_).value(), HasSubstr("extra: not a key"));
  EXPECT_EQ(Run(kPublished + " --out " + out_), kExitUsage);
  EXPECT_THAT(said_, HasSubstr("is there already"));
}

}  // namespace
}  // namespace oxbow::cli
