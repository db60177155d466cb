// SPDX-License-Identifier: Apache-2.0
// A process whose device has no room for a tensor says so in one line, with what to change, and
// ends with an exit code that is not tried again.
#include <cstdlib>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kExitOutOfMemory = 7;

// A process that starts while it lives has room in `process` for tensors of so many bytes.
class SmallMemory {
 public:
  SmallMemory(const char* process, const char* bytes_max) {
    setenv("LD_PRELOAD", OXBOW_SMALL_MEMORY, 1);
    setenv("OXBOW_TENSOR_PROCESS", process, 1);
    setenv("OXBOW_TENSOR_BYTES_MAX", bytes_max, 1);
  }
  ~SmallMemory() {
    for (const char* name : {"LD_PRELOAD", "OXBOW_TENSOR_PROCESS", "OXBOW_TENSOR_BYTES_MAX"}) {
      unsetenv(name);
    }
  }
};

// The weights fit, and the activations of a pass over all rows of an update do not.
constexpr char kRoomForWeights[] = "2500000";

TEST(FullMemoryTest, ALearnerThatHasNoRoomForAPassEndsTheRunOnceAndSaysWhatToChange) {
  const SmallMemory small("learner", kRoomForWeights);
  TrainingRun run({"run.steps=2", "batch.groups=8", "batch.updates=1"});
  EXPECT_EQ(run.WaitExit().value(), kExitOutOfMemory) << run.process().error_output();
  EXPECT_THAT(run.process().error_output(), HasSubstr("learner ended with exit code 7"));
  const std::string log = *ReadFile(run.directory() / "logs" / "learner.log");
  EXPECT_THAT(log, ContainsRegex("learner: out of memory: [^\n]*lower batch.rows_per_pass [^\n]*"
                                 "add recompute to model.memory\n"));
  EXPECT_EQ(log.find("out of memory"), log.rfind("out of memory")) << "it was started again";
}

TEST(FullMemoryTest, WhatTheLineSaysHelps) {
  const SmallMemory small("learner", kRoomForWeights);
  TrainingRun run({"run.steps=2", "batch.groups=8", "batch.updates=1", "batch.rows_per_pass=8"});
  EXPECT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), SizeIs(2));
}

TEST(FullMemoryTest, ACommandWithoutRoomForItsModelSaysSoInOneLine) {
  const SmallMemory small("oxbow", "30000");
  const std::string source = OXBOW_SOURCE_DIR;
  const Outcome outcome =
      RunOxbow({"sample", "--model", source + "/models/digits", "--prompt", "text 473"});
  EXPECT_EQ(outcome.exit_code, kExitOutOfMemory) << outcome.message;
  EXPECT_THAT(outcome.message, AllOf(HasSubstr("oxbow: out of memory: "), HasSubstr("bf16"),
                                     Not(HasSubstr("terminate"))));
  EXPECT_EQ(outcome.message.find('\n'), outcome.message.size() - 1);
}

}  // namespace
}  // namespace oxbow::testing
