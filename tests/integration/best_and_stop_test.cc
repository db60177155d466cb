// SPDX-License-Identifier: Apache-2.0
// A run keeps its best checkpoint, ends by its rules, and another run starts from what it has
// trained.
#include <set>

#include "base/exit_code.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::set<std::string> Checkpoints(const TrainingRun& run) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(run.directory() / "checkpoints")) {
    if (entry.is_directory()) names.insert(entry.path().filename().string());
  }
  return names;
}

std::string NameOf(int64_t step) { return "step_00000" + std::to_string(step); }

// The step after 0 with the highest held-out reward, the first of equals.
int64_t BestStep(const TrainingRun& run) {
  int64_t best = 0;
  double reward = -1;
  for (const nlohmann::json& line : run.metrics()) {
    if (line["step"] == 0 || !line.contains("eval/reward_mean")) continue;
    if (line["eval/reward_mean"] <= reward) continue;
    reward = line["eval/reward_mean"];
    best = line["step"];
  }
  return best;
}

// Promise: The best checkpoint stays and can be named.
TEST(BestCheckpointTest, IsKeptOverARestartExportedAndMeasured) {
  TrainingRun run({"run.steps=3", "eval.every=1", "checkpoint.every=0", "checkpoint.keep=1"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_EQ(Checkpoints(run), (std::set<std::string>{NameOf(BestStep(run)), NameOf(3)}));

  run.Resume({"run.steps=5", "eval.every=1", "checkpoint.every=0", "checkpoint.keep=1"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::string best = NameOf(BestStep(run));
  EXPECT_EQ(Checkpoints(run), (std::set<std::string>{best, NameOf(5)}));
  EXPECT_EQ(ReadFile(run.directory() / "checkpoints/best").value(), best + "\n");

  const std::string directory = run.directory().string();
  const Outcome exported =
      RunOxbow({"export", directory, "--format", "merged", "--checkpoint", "best"});
  ASSERT_EQ(exported.exit_code, 0) << exported.message;
  const io::Safetensors merged =
      io::ReadSafetensors(run.directory() /
                          "export/merged/transformer/diffusion_pytorch_model.safetensors")
          .value();
  EXPECT_EQ(merged.metadata.at("oxbow.step"), std::to_string(BestStep(run)));
  EXPECT_THAT(RunOxbow({"status", "--run", directory}).output,
              HasSubstr("checkpoint of step " + std::to_string(BestStep(run))));
  EXPECT_THAT(ReadFile(run.directory() / "report.html").value(), HasSubstr("best checkpoint"));
}

// Promise: A rule ends a run as its last step would.
TEST(StopRuleTest, EndsTheRunWithACheckpointALineAndItsExitCode) {
  const std::vector<std::string> settings = {
      "run.steps=50", "eval.every=0", "checkpoint.every=0",
      "run.stop_if=[{metric: train/reward_mean, above: -1, after_step: 2}]"};
  TrainingRun run(settings);
  ASSERT_EQ(run.WaitExit().value(), kExitStopped) << run.process().error_output();
  EXPECT_THAT(run.process().output(), AllOf(HasSubstr("stopped at step 3 of 50: train/reward_mean"),
                                            HasSubstr("above -1 (run.stop_if[0])")));
  EXPECT_EQ(Checkpoints(run), std::set<std::string>{NameOf(3)});
  EXPECT_TRUE(fs::exists(run.directory() / "weights"));
  const std::string directory = run.directory().string();
  EXPECT_THAT(
      RunOxbow({"status", "--run", directory}).output,
      AllOf(HasSubstr("(by rule"), HasSubstr("ended      by rule at step 3: train/reward_mean")));
  EXPECT_THAT(ReadFile(run.directory() / "report.html").value(), HasSubstr("above -1"));

  // The rule is still met: nothing is trained, and the run says so again.
  run.Resume(settings);
  ASSERT_EQ(run.WaitExit().value(), kExitStopped) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), SizeIs(3));

  // Another rule: the run goes on.
  run.Resume({"run.steps=4", "eval.every=0", "checkpoint.every=0", "run.stop_if=[]"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), SizeIs(4));
  EXPECT_THAT(RunOxbow({"status", "--run", directory}).output,
              AllOf(HasSubstr("(done"), ::testing::Not(HasSubstr("ended  "))));

  const Outcome again = RunOxbow({"resume", directory});
  EXPECT_EQ(again.exit_code, 0) << again.message;
  EXPECT_THAT(again.output,
              HasSubstr("all 4 steps are done, nothing is left to train; for more: "));
  const Outcome warned = RunOxbow({"resume", directory, "--set", "optimizer.learning_rate=100"});
  EXPECT_THAT(warned.message,
              AllOf(HasSubstr("oxbow resume: warning: "), HasSubstr("optimizer.learning_rate"),
                    ::testing::Not(HasSubstr("oxbow train: "))));
}

// Promise: A start from other weights is those weights. A run with `--from` or `model.lora.path`
// begins with the bits of its source (B scaled where alpha differs) and keeps them, with their
// hash, until its first checkpoint. A source that does not fit is refused in one line.
TEST(StartFromTest, ANewRunBeginsWithTheWeightsOfAnother) {
  TrainingRun old({"run.steps=2", "eval.every=0", "optimizer.learning_rate=1e-2"});
  ASSERT_EQ(old.WaitExit().value(), 0) << old.process().error_output();

  // No step moves the weights: they are those that the run began with.
  TrainingRun next({"run.steps=1", "eval.every=0", "optimizer.learning_rate=1e-30"},
                   {"--from", old.directory().string() + "@2"});
  ASSERT_EQ(next.WaitExit().value(), 0) << next.process().error_output();
  EXPECT_THAT(next.process().output(), HasSubstr("starts from"));
  const auto begun =
      io::ReadSafetensors(next.directory() / "checkpoints/step_000001/weights.safetensors").value();
  const auto average =
      io::ReadSafetensors(old.directory() / "checkpoints/step_000002/ema.safetensors").value();
  ASSERT_EQ(begun.tensors.size(), average.tensors.size());
  for (const auto& [name, tensor] : average.tensors) {
    EXPECT_EQ(begun.tensors.at(name).data, tensor.data) << name;
  }
  EXPECT_THAT(next.metrics(), SizeIs(2)) << "its steps count from 0";
}

// Promise: A start from other weights is those weights.
TEST(StartFromTest, AnAdaptersFileIsWhereARunBeginsAndItsHashIsKept) {
  const std::vector<std::string> lora = {"run.steps=1",        "eval.every=0",
                                         "model.trained=lora", "model.lora.rank=2",
                                         "model.lora.alpha=4", "model.lora.targets=[attn.to_q]"};
  std::vector<std::string> settings = lora;
  settings.push_back("optimizer.learning_rate=1e-2");
  TrainingRun old(settings);
  ASSERT_EQ(old.WaitExit().value(), 0) << old.process().error_output();
  const fs::path adapter = old.directory() / "weights/peft/adapter_model.safetensors";

  settings = lora;
  settings.push_back("optimizer.learning_rate=1e-30");
  settings.push_back("model.lora.path=" + adapter.string());
  TrainingRun next(settings);
  ASSERT_EQ(next.WaitExit().value(), 0) << next.process().error_output();
  const auto begun =
      io::ReadSafetensors(next.directory() / "checkpoints/step_000001/weights.safetensors").value();
  const auto file = io::ReadSafetensors(adapter).value();
  ASSERT_EQ(begun.tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : begun.tensors) {
    EXPECT_EQ(file.tensors.at("base_model.model." + name).data, tensor.data) << name;
  }
  const auto record =
      nlohmann::json::parse(ReadFile(next.directory() / "start/start.json").value());
  EXPECT_EQ(record["from"], adapter.string());
  EXPECT_THAT(record["sha256"].get<std::string>(), SizeIs(64));

  settings.push_back("model.lora.rank=1");
  TrainingRun other(settings);
  EXPECT_NE(other.WaitExit().value(), 0);
  EXPECT_THAT(other.process().error_output(), HasSubstr("set model.lora.rank to it, got 1"));
}

}  // namespace
}  // namespace oxbow::testing
