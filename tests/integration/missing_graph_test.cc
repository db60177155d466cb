// SPDX-License-Identifier: Apache-2.0
// A model without an exported graph: `oxbow train` has the exporter make it, a Python that these
// tests write. Other commands say how it is made.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGraph[] = "graph.json.gz";
constexpr char kHalf[] =
    "head -c 99 \"$graph\" > \"$6/graph.json.gz\"; echo one; "
    "echo 'export_model: config.json: num_layers is -1' >&2; echo; exit 1\n";

class MissingGraphTest : public ::testing::Test {
 protected:
  MissingGraphTest() {
    fs::copy(OXBOW_SOURCE_DIR "/models/digits", model_, fs::copy_options::recursive);
    for (const char* part : {"transformer", "text_encoder"}) {
      fs::rename(model_ / part / kGraph, scratch_.path() / part);
    }
    Python("cp \"$graph\" \"$6/graph.json.gz\"\n");
  }
  ~MissingGraphTest() override { unsetenv("OXBOW_PYTHON"); }

  // From now on Python has the exporter. It notes what it is asked for; then it does `script`, in
  // which $graph is the file that it should write into the folder $6.
  void Python(const std::string& script) {
    const fs::path python = scratch_.path() / "python3";
    std::ofstream(python) << "#!/bin/sh\ncase \"$2\" in *find_spec*) exit 0;; esac\nshift 3\n"
                          << "echo \"$1 $2 $4\" >> " << asked_.string() << "\n"
                          << "graph=" << scratch_.path().string() << "/$(basename $(dirname $4))\n"
                          << script;
    chmod(python.c_str(), 0755);
    setenv("OXBOW_PYTHON", python.c_str(), 1);
  }

  std::vector<std::string> Asked() const {
    const auto text = ReadFile(asked_);
    return absl::StrSplit(text.value_or(""), '\n', absl::SkipEmpty());
  }
  std::string Asks(const char* class_name, const char* part) const {
    return absl::StrCat("export ", class_name, " ", (model_ / part / "config.json").string());
  }

  Outcome Call(const std::string& command) const {
    return RunOxbow({command, OXBOW_SOURCE_DIR "/configs/recipes/digits-op-grpo.yaml", "--set",
                     Model(), "--set", "run.directory=" + (scratch_.path() / "runs").string()});
  }
  std::string Model() const { return "model.path=" + model_.string(); }

  // Neither a graph nor a part of one is anywhere, and no run was begun.
  void ExpectNothingLeft() const {
    for (const char* part : {"transformer", "text_encoder"}) {
      for (const auto& file : fs::directory_iterator(model_ / part)) {
        EXPECT_THAT(file.path().string(), Not(HasSubstr("graph")));
      }
    }
    EXPECT_FALSE(fs::exists(scratch_.path() / "runs"));
  }

  const ScopedDirectory scratch_;
  const fs::path model_ = scratch_.path() / "model", asked_ = scratch_.path() / "asked";
};

// Promise: A model without a graph trains. `oxbow train` runs the exporter once for each part that
// no graph fits, where a Python here has diffusers. A graph is there whole or not at all.
TEST_F(MissingGraphTest, TrainMakesEachGraphOnceAndTrains) {
  TrainingRun run({Model(), "run.steps=1", "eval.every=1"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(Asked(), ElementsAre(Asks("SD3Transformer2DModel", "transformer"),
                                   Asks("CLIPTextModelWithProjection", "text_encoder")));
  EXPECT_THAT(run.process().output(), HasSubstr("makes the graph of this SD3Transformer2DModel"));
  for (const char* part : {"transformer", "text_encoder"}) {
    EXPECT_EQ(ReadFile(model_ / part / kGraph).value(), ReadFile(scratch_.path() / part).value());
    EXPECT_EQ(std::ranges::distance(fs::directory_iterator(model_ / part)), 3) << "and two more";
  }
  run.Resume({Model(), "run.steps=2", "eval.every=1"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_EQ(Asked().size(), 2u);
}

TEST_F(MissingGraphTest, AnExporterThatFailsIsOneLineWithItsLastWords) {
  Python(kHalf);
  const Outcome outcome = Call("train");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_EQ(std::ranges::count(outcome.message, '\n'), 1) << outcome.message;
  EXPECT_THAT(outcome.message,
              AllOf(HasSubstr("oxbow train: the graph of this SD3Transformer2DModel was not made: "
                              "export_model: config.json: num_layers is -1 (exit code 1; "),
                    HasSubstr("export_model export SD3Transformer2DModel --config")));
  ExpectNothingLeft();
}

TEST_F(MissingGraphTest, ASuccessWithoutAGraphIsNone) {
  Python("exit 0\n");
  const Outcome outcome = Call("train");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.message, HasSubstr("was not made: it said nothing (exit code 0"));
  ExpectNothingLeft();
}

TEST_F(MissingGraphTest, AGraphOfAnotherConfigurationIsNotAskedForAgain) {
  Python("cp " OXBOW_SOURCE_DIR "/models/digits_sparse/transformer/graph.json.gz \"$6\"\n");
  const auto config = model_ / "transformer" / "config.json";
  std::string text = ReadFile(config).value();
  text.replace(text.find("\"num_layers\""), 12, "\"num_layers\": 99, \"other\"");
  ASSERT_TRUE(WriteFileAtomically(config, text).ok());
  const Outcome outcome = Call("train");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.message, HasSubstr("num_layers is 99"));
  EXPECT_EQ(Asked().size(), 1u);
}

TEST_F(MissingGraphTest, OtherCommandsAndATrainWithoutSuchAPythonSayTheCommand) {
  const auto says = AllOf(HasSubstr("model.path: no graph of this SD3Transformer2DModel"),
                          HasSubstr("python3 -m export_model export SD3Transformer2DModel "
                                    "--config " +
                                    (model_ / "transformer" / "config.json").string()));
  for (const char* command : {"validate", "doctor"}) {
    const Outcome outcome = Call(command);
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.output + outcome.message, says) << command;
  }
  EXPECT_TRUE(Asked().empty());
  setenv("OXBOW_PYTHON", "/nowhere/python3", 1);
  const Outcome outcome = Call("train");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.message, says);
  ExpectNothingLeft();
}

// A run file with another mistake is not worth a minute of work.
TEST_F(MissingGraphTest, OtherErrorsComeFirst) {
  const Outcome outcome =
      RunOxbow({"train", OXBOW_SOURCE_DIR "/configs/recipes/digits-op-grpo.yaml", "--set", Model(),
                "--set", "batch.groups=0"});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.message, HasSubstr("batch.groups"));
  EXPECT_TRUE(Asked().empty());
}

TEST_F(MissingGraphTest, AStopSignalEndsTheExporter) {
  const fs::path hangs = scratch_.path() / "hangs";
  ASSERT_EQ(mkfifo(hangs.c_str(), 0600), 0);
  Python("echo $$ > \"$6/graph.json.gz\"; cp \"$6/graph.json.gz\" " + asked_.string() +
         "; read line < " + hangs.string() + "\n");
  auto process = Process::Start(
      {.argv = {BinaryPath("oxbow"), "train",
                OXBOW_SOURCE_DIR "/configs/recipes/digits-op-grpo.yaml", "--set", Model(), "--set",
                "run.directory=" + (scratch_.path() / "runs").string()},
       .environment = {}});
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE((*process)->WaitForLine("model.path: makes the graph", absl::Seconds(60)).ok());
  (*process)->Kill(SIGTERM);
  EXPECT_EQ((*process)->WaitExit(absl::Seconds(60)).value(), 9);
  EXPECT_THAT((*process)->error_output(), HasSubstr("asked to stop while it made a graph"));
  ExpectNothingLeft();
  int exporter = 0;  // It had no time to say so: nothing to look for.
  if (absl::SimpleAtoi(ReadFile(asked_).value_or(""), &exporter)) {
    EXPECT_NE(kill(exporter, 0), 0) << "the exporter still runs";
  }
}

}  // namespace
}  // namespace oxbow::testing
