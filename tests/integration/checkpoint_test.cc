// SPDX-License-Identifier: Apache-2.0
// Checkpoints of real runs: at a stop, in a second place, and after their inputs have changed.
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string TextOf(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::set<std::string> NamesIn(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

std::string NameOf(int64_t step) {
  const std::string digits = std::to_string(step);
  return "step_" + std::string(6 - digits.size(), '0') + digits;
}

std::string UidOf(const TrainingRun& run) {
  std::string uid;
  std::getline(std::ifstream(run.directory() / "run_uid") >> std::ws, uid);
  return uid;
}

// The run's own checkpoints are lost; it goes on from the copies.
// Promise: A stop signal is answered by a checkpoint.
TEST(CheckpointRunTest, AStopWritesACheckpointAndNoEvaluationAndACopyIsEnoughToGoOn) {
  const ScopedDirectory second;
  const std::string copies = "checkpoint.copy_to=" + second.path().string();
  TrainingRun run({"run.steps=500", "checkpoint.every=2", "eval.every=400", copies});
  ASSERT_TRUE(run.WaitForStep(3)) << run.process().error_output();
  run.process().Kill(SIGINT);
  ASSERT_EQ(run.WaitExit(absl::Seconds(60)).value(), 130) << run.process().error_output();
  const nlohmann::json last = run.metrics().back();
  EXPECT_FALSE(last.contains("eval/reward_mean")) << last;

  const std::string newest = NameOf(last["step"]);
  const fs::path checkpoints = run.directory() / "checkpoints";
  EXPECT_TRUE(NamesIn(checkpoints).contains(newest));
  const fs::path copied = second.path() / UidOf(run);
  ASSERT_TRUE(NamesIn(copied).contains(newest));
  fs::remove_all(checkpoints);
  fs::create_directories(checkpoints);
  fs::copy(copied / newest, checkpoints / newest);
  const int64_t reached = last["step"];
  run.Resume({"run.steps=" + std::to_string(reached + 1), copies});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_EQ(run.metrics().back()["step"], reached + 1);
  EXPECT_EQ(run.metrics().back()["checkpoint/copies_failed"], 0);
}

// Runs of one name in other places, as after a disk was lost, and one target.
// Promise: A copy of a checkpoint never ends a run.
TEST(CheckpointRunTest, ARunBesideCopiesOfItsNameIsRefusedAndOneThatBeginsAnyhowDeletesNone) {
  const ScopedDirectory second;
  const std::string copies = "checkpoint.copy_to=" + second.path().string();
  TrainingRun first({"run.steps=4", "checkpoint.every=2", copies});
  ASSERT_EQ(first.WaitExit().value(), 0) << first.process().error_output();
  const fs::path kept = second.path() / UidOf(first);
  const std::set<std::string> names = NamesIn(kept);
  EXPECT_TRUE(names.contains("step_000002") && names.contains("step_000004"));

  for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--resume"}}) {
    TrainingRun refused({"run.steps=2", copies}, flags);
    EXPECT_EQ(refused.WaitExit().value(), 2);
    EXPECT_THAT(refused.process().error_output(),
                ::testing::AllOf(HasSubstr("cp -r " + kept.string() + "/step_*"),
                                 HasSubstr("up to step 4"), HasSubstr("--overwrite")));
    EXPECT_FALSE(fs::exists(refused.directory())) << "it has changed nothing";
  }

  TrainingRun anyhow({"run.steps=2", "checkpoint.every=1", "checkpoint.keep=1", copies},
                     {"--overwrite"});
  ASSERT_EQ(anyhow.WaitExit().value(), 0) << anyhow.process().error_output();
  EXPECT_EQ(NamesIn(kept), names);
  EXPECT_TRUE(NamesIn(second.path() / UidOf(anyhow)).contains("step_000002"));
}

// Promise: A copy of a checkpoint never ends a run.
TEST(CheckpointRunTest, ACopyThatFailsIsAWarningAndTheRunEndsWell) {
  TrainingRun run({"run.steps=2", "checkpoint.copy_to=command: exit 7 # {}"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(TextOf(run.directory() / "logs/learner.log"),
              ::testing::AllOf(HasSubstr("checkpoint was not copied"), HasSubstr("status 7")));
  EXPECT_THAT(run.process().error_output(), HasSubstr("warning: the last checkpoint is not at"));
  EXPECT_THAT(TextOf(run.directory() / "ended.json"),
              ::testing::AllOf(HasSubstr("\"done\""), HasSubstr("checkpoint.copy_to: ")));
}

// Promise: A copy of a checkpoint never ends a run.
TEST(CheckpointRunTest, CopiesThatFailAreSaidAtTheFirstInTheLastWordsAndByDoctor) {
  TrainingRun run(
      {"run.steps=500", "checkpoint.every=1", "checkpoint.copy_to=command: exit 7 # {}"});
  const auto said = run.process().WaitForLine("warning: a checkpoint was not copied", kRunDeadline);
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_THAT(*said, HasSubstr("checkpoint.copy_to: the command ended with"));
  run.process().Kill(SIGINT);
  ASSERT_EQ(run.WaitExit().value(), 130) << run.process().error_output();
  const std::string why =
      "the last checkpoint is not at checkpoint.copy_to: the command ended with";
  EXPECT_THAT(run.process().error_output(), HasSubstr("warning: " + why));
  EXPECT_THAT(RunOxbow({"doctor", run.directory().string(), "--format", "json"}).output,
              HasSubstr(why));
}

// The learner drains and then waits for a copy that never ends.
// Promise: A stop signal is answered by a checkpoint.
TEST(CheckpointRunTest, ASecondSignalEndsTheLearnerAtOnce) {
  const ScopedDirectory scratch;
  const std::string gate = (scratch.path() / "gate").string();
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  TrainingRun run(
      {"run.steps=500", "checkpoint.every=0", "checkpoint.copy_to=command: cat " + gate + " # {}"});
  ASSERT_TRUE(run.WaitForStep(1)) << run.process().error_output();
  const fs::path log = run.directory() / "logs/learner.log";
  const absl::Duration end = Clock::Steady().Now() + absl::Seconds(30);
  const auto ended = [&] { return TextOf(log).find("stopping at once") != std::string::npos; };
  while (!ended() && Clock::Steady().Now() < end) {
    run.KillChild("learner", SIGTERM);
    if (run.WaitExit(absl::Milliseconds(100)).ok()) break;
  }
  EXPECT_TRUE(ended());
}

// Promise: Resume continues from the checkpoint.
TEST(CheckpointRunTest, OtherPromptsAreRefusedByName) {
  const ScopedDirectory scratch;
  const std::string prompts = (scratch.path() / "train.txt").string();
  fs::copy_file(fs::path(OXBOW_SOURCE_DIR) / "configs/prompts/digits_train.txt", prompts);
  const std::string key = "prompts.train=" + prompts;
  TrainingRun run({"run.steps=1", key});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();

  std::ofstream(prompts, std::ios::app) << "text 1\n";
  run.Resume({"run.steps=2", key});
  EXPECT_EQ(run.WaitExit().value(), 2);
  EXPECT_THAT(run.process().error_output(),
              ::testing::AllOf(HasSubstr("prompts.train has other prompts"), HasSubstr(prompts)));

  // A checkpoint of an older version knows no content, but how many prompts were taken.
  const fs::path manifest = run.directory() / "checkpoints/step_000001/manifest.json";
  nlohmann::json older = nlohmann::json::parse(TextOf(manifest));
  older.erase("sha256");
  older["state"].erase("prompts_sha256");
  older["state"]["prompts_taken"] = 100'000;
  std::ofstream(manifest) << older.dump();
  run.Resume({"run.steps=2", key});
  EXPECT_EQ(run.WaitExit().value(), 4);
  const fs::path log = run.directory() / "logs/learner.log";
  EXPECT_THAT(TextOf(log), HasSubstr("has taken 100000 prompts of a file that has"));
}

// A flipped bit of a file of weights.
void Damage(const fs::path& file) {
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(-5, std::ios::end);
  const char changed = static_cast<char>(bytes.get() ^ 1);
  bytes.seekp(-5, std::ios::end);
  bytes.put(changed);
}

// Renamed and moved, with model and prompts at other paths: it goes on where it stopped, and not
// with the run that has its former name.
// Promise: A run goes on wherever it lies. A run directory that was renamed, moved or copied
// resumes by `oxbow resume`, with model and prompts at other paths if their content is the same. It
// never goes on with the run of its former name. Checkpoints of older versions, which knew names
// and paths, do so too.
TEST(MovedRunTest, GoesOnWhereverItLies) {
  const ScopedDirectory elsewhere;
  TrainingRun run({"run.steps=3", "checkpoint.every=1", "eval.every=1"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const fs::path moved = elsewhere.path() / "b" / "other name";
  fs::create_directories(moved.parent_path());
  fs::copy(run.directory(), moved, fs::copy_options::recursive);
  const fs::path source = OXBOW_SOURCE_DIR;
  fs::copy(source / "models/digits", elsewhere.path() / "model", fs::copy_options::recursive);
  fs::copy(source / "configs/prompts/digits_train.txt", elsewhere.path() / "t.txt");
  Damage(moved / "checkpoints/step_000003/weights.safetensors");

  const Outcome wrong = RunOxbow({"train", (moved / "config.resolved.yaml").string(), "--resume"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.message, HasSubstr("use oxbow resume '" + moved.string() + "'"));

  const std::vector<std::string> goes_on = {
      "resume", moved.string(),
      "--set",  "run.steps=4",
      "--set",  "model.path=" + (elsewhere.path() / "model").string(),
      "--set",  "prompts.train=" + (elsewhere.path() / "t.txt").string(),
      "--set",  "reward.observed=[brightness]"};
  const Outcome resumed = RunOxbow(goes_on);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.message << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("resumed at step 2 of 4\n"));
  EXPECT_THAT(resumed.output, HasSubstr("warning: the checkpoint of step 3 is damaged and kept as "
                                        "step_000003.damaged, going on from 2\n"));
  EXPECT_TRUE(fs::exists(moved / "checkpoints/step_000003.damaged"));
  EXPECT_THAT(resumed.output, ::testing::Not(HasSubstr("step 1      held-out")))
      << "of the start before";
  EXPECT_EQ(RunFiles(moved).metrics().back()["step"], 4);
  EXPECT_EQ(run.metrics().back()["step"], 3) << "the run of the former name is left alone";
  EXPECT_THAT(TextOf(moved / "report.html"), HasSubstr("[brightness]"));

  // Another model at another path is named.
  Damage(elsewhere.path() / "model/transformer/diffusion_pytorch_model.safetensors");
  const Outcome other = RunOxbow({"resume", moved.string(), "--set", "run.steps=5", "--set",
                                  "model.path=" + (elsewhere.path() / "model/").string()});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.message, HasSubstr("which is another model: its transformer differs"));
  // And so is one at the same path, by the learner.
  const Outcome same = RunOxbow({"resume", moved.string(), "--set", "run.steps=5"});
  EXPECT_EQ(same.exit_code, 4);
  EXPECT_THAT(same.message, HasSubstr("model.path: transformer is another than when"));
  EXPECT_THAT(RunOxbow({"runs", moved.parent_path().string()}).output,
              HasSubstr("failed: model.path: transformer"));
}

}  // namespace
}  // namespace oxbow::testing
