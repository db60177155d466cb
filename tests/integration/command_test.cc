// SPDX-License-Identifier: Apache-2.0
// The subcommands for models, runs and configs, called as a user calls them.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/image.h"
#include "io/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string kSource = OXBOW_SOURCE_DIR;
const std::string kBase = kSource + "/models/digits";
const std::string kWeights = "transformer/diffusion_pytorch_model.safetensors";

std::string Content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

class CommandTest : public ::testing::Test {
 protected:
  // `source` is --model or --run.
  std::string Measure(const std::string& source, const std::filesystem::path& path) {
    const Outcome outcome =
        RunOxbow({"eval", source, path.string(), "--json", "--images", "16", "--seed", "3",
                  "--prompts", kSource + "/configs/prompts/digits_eval.txt"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.message;
    EXPECT_TRUE(nlohmann::json::accept(outcome.output)) << outcome.output;
    return outcome.output;
  }
  std::string Draw(const std::string& source, const std::filesystem::path& path, int seed,
                   const std::vector<std::string>& more = {}) {
    const std::filesystem::path sheet = scratch_.path() / "sheet.png";
    std::vector<std::string> arguments = {"sample",
                                          "--prompt",
                                          "text 473",
                                          "--count",
                                          "4",
                                          source,
                                          path.string(),
                                          "--seed",
                                          std::to_string(seed),
                                          "--out",
                                          sheet.string(),
                                          "--replace"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = RunOxbow(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.message;
    return Content(sheet);
  }
  ScopedDirectory scratch_;
};

void ExpectSameTensors(const std::filesystem::path& part, const std::filesystem::path& whole) {
  const io::Safetensors few = io::ReadSafetensors(part).value();
  const io::Safetensors all = io::ReadSafetensors(whole).value();
  EXPECT_FALSE(few.tensors.empty());
  for (const auto& [name, tensor] : few.tensors) {
    ASSERT_TRUE(all.tensors.contains(name)) << name;
    EXPECT_EQ(tensor.data, all.tensors.at(name).data) << name;
  }
}

TEST_F(CommandTest, ASheetIsAPngFileThatReplacesNoOtherUnasked) {
  const std::string sheet = (scratch_.path() / "grid.png").string();
  const auto draw = [](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"sample",  "--model", kBase,   "--prompt", "text 473",
                                          "--count", "1",       "--out", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunOxbow(arguments);
  };
  const Outcome jpeg = draw((scratch_.path() / "grid.jpg").string(), {});
  EXPECT_EQ(jpeg.exit_code, 2);
  EXPECT_THAT(jpeg.message, HasSubstr("its name ends in .png, got "));
  EXPECT_FALSE(std::filesystem::exists(scratch_.path() / "grid.jpg"));

  ASSERT_EQ(draw(sheet, {"--seed", "1"}).exit_code, 0);
  const std::string first = Content(sheet);
  const Outcome again = draw(sheet, {"--seed", "2"});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.message, HasSubstr("--out exists (remove it, choose another name or give "));
  EXPECT_EQ(Content(sheet), first);
  ASSERT_EQ(draw(sheet, {"--seed", "2", "--replace"}).exit_code, 0);
  EXPECT_NE(Content(sheet), first);
}

// The place comes before prompts and runs, which are not there.
TEST_F(CommandTest, APlaceThatIsNotThereIsOneLineBeforeTheWorkAndOneExitCode) {
  std::ofstream(scratch_.path() / "file") << "x";
  const std::string absent = (scratch_.path() / "absent/out.png").string();
  const std::string folder = (scratch_.path() / "file/out").string();
  const std::vector<std::string> eval = {"eval", "--set", "geneval", "--model", kBase};
  const auto with = [](std::vector<std::string> command, const std::vector<std::string>& more) {
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  const std::vector<std::vector<std::string>> commands = {
      {"sample", "--model", kBase, "--prompt", "a", "--out", absent},
      with(eval, {"--html", absent}),
      with(eval, {"--export-images", folder}),
      {"export", scratch_.path().string(), "--format", "peft", "--out", folder},
      {"encode", "--model", kBase, "--prompts", "no.txt", "--cache", folder},
      {"compare", scratch_.path().string(), scratch_.path().string(), "--out", absent}};
  for (const std::vector<std::string>& command : commands) {
    const Outcome refused = RunOxbow(command);
    EXPECT_EQ(refused.exit_code, 2) << command[0] << ": " << refused.message;
    EXPECT_THAT(refused.message, HasSubstr("cannot write to: No")) << command[0];
    EXPECT_EQ(std::count(refused.message.begin(), refused.message.end(), '\n'), 1)
        << refused.message;
  }
}

TEST_F(CommandTest, EachPictureLiesBesideTheSheetAndCanBeScored) {
  const std::string sheet = (scratch_.path() / "grid.png").string();
  const std::vector<std::string> draw = {"sample",  "--model", kBase,   "--prompt", "text 473",
                                         "--count", "2",       "--out", sheet};
  ASSERT_EQ(RunOxbow(draw).exit_code, 0);
  const std::string one = (scratch_.path() / "grid_0001.png").string();
  const auto picture = io::DecodePng(Content(one));
  ASSERT_TRUE(picture.ok()) << picture.status();
  EXPECT_EQ(picture->width, 20);
  EXPECT_EQ(picture->height, 8);
  const Outcome scored = RunOxbow({"score", (scratch_.path() / "grid_0000.png").string(), one,
                                   "--reward", "digits_ocr", "--prompt", "text 473"});
  EXPECT_EQ(scored.exit_code, 0) << scored.message;
  EXPECT_THAT(scored.output, HasSubstr("grid_0001.png"));

  std::filesystem::remove(sheet);
  const Outcome again = RunOxbow(draw);
  EXPECT_EQ(again.exit_code, 2) << "a picture would be replaced";
  EXPECT_THAT(again.message, HasSubstr("grid_0000.png"));
}

TEST_F(CommandTest, AFinishedRunIsShownWithTheWeightsItTrained) {
  TrainingRun run({"run.steps=2", "optimizer.learning_rate=1e-2"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();

  // The shown model is the trained one, and files keep every bit of it.
  const std::filesystem::path last = run.directory() / "checkpoints" / "step_000002";
  const std::filesystem::path weights = run.directory() / "weights";
  ExpectSameTensors(last / "ema.safetensors", weights / kWeights);
  ExpectSameTensors(last / "weights.safetensors", weights / "raw" / kWeights);

  // The base model with the run's transformer equals the run.
  const std::filesystem::path composed = scratch_.path() / "model";
  std::filesystem::copy(kBase, composed, std::filesystem::copy_options::recursive);
  std::filesystem::copy_file(weights / kWeights, composed / kWeights,
                             std::filesystem::copy_options::overwrite_existing);
  const std::string measured = Measure("--run", run.directory());
  EXPECT_EQ(measured, Measure("--model", composed));
  EXPECT_NE(measured, Measure("--model", kBase));
  const std::string drawn = Draw("--run", run.directory(), 1);
  EXPECT_EQ(drawn, Draw("--model", composed, 1));
  EXPECT_NE(drawn, Draw("--model", kBase, 1));
  EXPECT_NE(drawn, Draw("--run", run.directory(), 2));

  const std::string report = Content(run.directory() / "report.html");
  std::filesystem::remove(run.directory() / "report.html");
  EXPECT_EQ(RunOxbow({"report", run.directory().string()}).exit_code, 0);
  EXPECT_EQ(Content(run.directory() / "report.html"), report) << "the report is made of the files";
}

// MixGRPO's hybrid sampling, of a full fine-tune and of an adapter.
TEST_F(CommandTest, TheBaseModelTakesTheStepsThatARunLeavesIt) {
  for (const char* trained : {"full", "lora"}) {
    TrainingRun run({"run.steps=2", "eval.every=0", "optimizer.learning_rate=3e-2",
                     std::string("model.trained=") + trained});
    ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
    const auto draw = [&](const char* steps) {
      return Draw("--run", run.directory(), 1, {"--base-after", steps});
    };
    const std::string base = Draw("--model", kBase, 1);
    const std::string whole = Draw("--run", run.directory(), 1);
    ASSERT_NE(base, whole) << trained;
    EXPECT_EQ(draw("0"), base) << trained;
    EXPECT_EQ(draw("10"), whole) << trained;
    const std::string half = draw("5");
    EXPECT_NE(half, base) << trained;
    EXPECT_NE(half, whole) << trained;
    const Outcome beyond =
        RunOxbow({"sample", "--run", run.directory().string(), "--prompt", "text 473",
                  "--base-after", "11", "--out", (scratch_.path() / "b.png").string()});
    EXPECT_EQ(beyond.exit_code, 2);
    EXPECT_THAT(beyond.message, HasSubstr("--base-after takes 0 to 10"));
  }
  const Outcome model =
      RunOxbow({"sample", "--model", kBase, "--prompt", "text 473", "--base-after", "5"});
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_THAT(model.message, HasSubstr("--run"));
}

TEST_F(CommandTest, ARunOfAnotherRewardIsMeasuredByThatRewardFromAnywhere) {
  TrainingRun run(
      {"run.steps=1", "reward.terms=[{name: edge_density, weight: 1}]", "eval.every=0"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const Outcome measured = RunOxbow({"eval", "--run", run.directory().string(), "--json"});
  ASSERT_EQ(measured.exit_code, 0) << measured.message;
  EXPECT_THAT(measured.output, AllOf(HasSubstr("\"reward\":\"edge_density\""),
                                     ::testing::Not(HasSubstr("speckle"))));

  // Whole rounds over the prompts, as of a task's report.
  std::ofstream(scratch_.path() / "three.txt") << "text 473\ntext 120\ntext 905\n";
  const Outcome counted = RunOxbow({"eval", "--run", run.directory().string(), "--json", "--images",
                                    "7", "--prompts", (scratch_.path() / "three.txt").string()});
  ASSERT_EQ(counted.exit_code, 0) << counted.message;
  EXPECT_THAT(counted.output, HasSubstr("\"prompts\":3,\"pictures_per_prompt\":3,"));
}

TEST_F(CommandTest, PicturesOfARunsOwnPromptsAreSavedWithoutASet) {
  TrainingRun run({"run.steps=1", "eval.every=0"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  std::ofstream(scratch_.path() / "two.txt") << "text 473\ntext 120\n";
  const std::filesystem::path folder = scratch_.path() / "pictures";
  const Outcome saved =
      RunOxbow({"eval", "--run", run.directory().string(), "--save", folder.string(), "--images",
                "4", "--prompts", (scratch_.path() / "two.txt").string()});
  ASSERT_EQ(saved.exit_code, 0) << saved.message;
  for (const char* file : {"00000/samples/0000.png", "00001/samples/0001.png"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / file)) << file;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "00001/samples/0002.png"));
  const Outcome model = RunOxbow({"eval", "--model", kBase, "--save", folder.string()});
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_THAT(model.message, HasSubstr("--run"));
}

TEST_F(CommandTest, ARunThatIsNotThereIsOneLineOfEveryCommand) {
  const std::string none = (scratch_.path() / "none").string();
  std::filesystem::create_directories(scratch_.path() / "real");
  std::ofstream(scratch_.path() / "real/metrics.jsonl") << "{\"step\":1}\n";
  const std::vector<std::vector<std::string>> calls = {
      {"report", none},
      {"watch", none, "--port", "0"},
      {"export", none, "--format", "diffusers"},
      {"compare", none, none},
      {"rollback", none, "--to", "best"},
      {"status", "--run", none},
      {"doctor", "--run-dir", none},
      {"eval", "--run", none},
      {"sample", "--run", none, "--prompt", "text 473"},
      {"replay", "list", "--run", none},
      {"simulate", "--from-run", none}};
  for (const std::vector<std::string>& call : calls) {
    const Outcome outcome = RunOxbow(call);
    EXPECT_EQ(outcome.exit_code, 4) << call[0];
    EXPECT_THAT(outcome.message, HasSubstr("no run there: " + none + "; runs beside it: real"))
        << call[0];
  }
}

TEST_F(CommandTest, CommandsOfCommandsHaveAnExampleToo) {
  for (const char* command : {"replay", "bench", "config", "import-config"}) {
    EXPECT_THAT(RunOxbow({command, "--help"}).output, HasSubstr("Example: oxbow ")) << command;
  }
}

// A run that one refuses, the other refuses in the same words, before anything starts.
// Promise: `train` starts a config that `validate` accepts. On one machine both ask the same
// questions: rules, files, this build, its devices and addresses, rewards that load, and metadata
// that they need. A refusal has the same words in both. A port or a disk that is taken between the
// two is not known before.
TEST_F(CommandTest, TrainAndValidateAgreeOnRewards) {
  std::filesystem::create_directories(scratch_.path() / "empty");
  const std::string model = (scratch_.path() / "empty").string();
  const std::vector<std::vector<std::string>> cases = {
      {"reward.terms=[{name: digits_graded, weight: 1}]"},  // These prompts have no metadata.
      {"reward.terms=[{name: pickscore, weight: 1}]",
       "reward.scorers=[{name: pickscore, model: " + model + "}]"}};
  for (const std::vector<std::string>& keys : cases) {
    std::vector<std::string> rest = {kSource + "/configs/digits.yaml", "--set",
                                     "run.directory=" + (scratch_.path() / "runs").string()};
    for (const std::string& key : keys) rest.insert(rest.end(), {"--set", key});
    std::vector<std::string> validate = {"validate"}, train = {"train"};
    validate.insert(validate.end(), rest.begin(), rest.end());
    train.insert(train.end(), rest.begin(), rest.end());
    const Outcome said = RunOxbow(validate), started = RunOxbow(train);
    EXPECT_NE(said.exit_code, 0) << keys[0];
    EXPECT_EQ(started.exit_code, said.exit_code) << keys[0] << started.message;
    // A message on a key begins with the place of the key.
    const std::string words = "oxbow validate: ";
    const bool of_a_key = said.message.starts_with("--set: reward.");
    ASSERT_TRUE(of_a_key || said.message.starts_with(words)) << said.message;
    EXPECT_THAT(started.message, HasSubstr(said.message.substr(of_a_key ? 0 : words.size())));
    EXPECT_FALSE(std::filesystem::exists(scratch_.path() / "runs")) << keys[0];
  }
}

TEST_F(CommandTest, WordsThatAreNotExpectedAreNamedInTheirOrder) {
  const Outcome gpus = RunOxbow({"train", "a.yaml", "--gpus", "8x80"});
  EXPECT_EQ(gpus.exit_code, 2);
  EXPECT_THAT(gpus.message, AllOf(HasSubstr("not expected here: --gpus 8x80\n"),
                                  HasSubstr("its options are --")));
  EXPECT_THAT(RunOxbow({"import-config", "flow-grp"}).message,
              HasSubstr("did you mean `oxbow import-config flow-grpo`?"));
}

TEST_F(CommandTest, TrainOfARunsDirectorySaysHowToGoOn) {
  std::ofstream(scratch_.path() / "config.resolved.yaml") << "run: {}\n";
  const Outcome refused = RunOxbow({"train", scratch_.path().string()});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.message, HasSubstr("oxbow resume " + scratch_.path().string()));
}

TEST_F(CommandTest, ARecipeIsListedWithAWholeSentence) {
  const Outcome recipes = RunOxbow({"recipes"});
  std::istringstream lines(recipes.output);
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_TRUE(line.ends_with(".")) << line;
  }
  EXPECT_GT(count, 20u);
}

// Promise: `validate` knows the room of prompts to encode.
TEST_F(CommandTest, ADiskWithoutRoomForThePromptsIsFoundBeforeTheStart) {
  const std::filesystem::path runs = scratch_.path() / "runs";
  for (const char* command : {"validate", "train"}) {
    const Outcome refused = RunOxbow({command, kSource + "/configs/digits.yaml", "--set",
                                      "run.directory=" + runs.string(), "--set",
                                      "prompts.cache=/proc/none"});  // It has no room at all.
    EXPECT_EQ(refused.exit_code, 5) << command << refused.message;
    EXPECT_THAT(refused.message, AllOf(HasSubstr("prompts.cache"), HasSubstr("/proc"))) << command;
  }
  EXPECT_FALSE(std::filesystem::exists(runs));
}

TEST_F(CommandTest, AModelIsMeasuredFromAnotherDirectory) {
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(scratch_.path());
  const Outcome measured = RunOxbow({"eval", "--model", kBase, "--images", "16", "--json"});
  std::filesystem::current_path(here);
  ASSERT_EQ(measured.exit_code, 0) << measured.message;
  EXPECT_THAT(measured.output, HasSubstr("minority_share"));
}

TEST_F(CommandTest, ALiveRunTellsItsStatusAndAnEndedOneSaysSo) {
  TrainingRun run({"run.steps=500", "checkpoint.every=0"});
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  const std::string directory = run.directory().string();

  const Outcome live = RunOxbow({"status", "--run", directory});
  EXPECT_EQ(live.exit_code, 0) << live.message;
  EXPECT_THAT(live.output, AllOf(HasSubstr("run        run"), ContainsRegex("step [0-9]+/500"),
                                 HasSubstr("weights    version"), HasSubstr("worker")));
  const auto endpoints = nlohmann::json::parse(Content(run.directory() / "endpoints.json"));
  std::string learner;
  for (const auto& service : endpoints["services"]) {
    if (service["name"] == "learner") learner = service["grpc"];
  }
  EXPECT_THAT(RunOxbow({"status", "--addr", learner}).output, HasSubstr("run        run"));
  EXPECT_EQ(RunOxbow({"report", directory}).exit_code, 0) << "of a run in progress";
  const Outcome early = RunOxbow(
      {"eval", "--run", directory, "--prompts", kSource + "/configs/prompts/digits_eval.txt"});
  EXPECT_EQ(early.exit_code, 4);
  EXPECT_THAT(early.message, HasSubstr("no checkpoint in"));

  run.process().Kill(SIGINT);
  ASSERT_EQ(run.WaitExit(absl::Seconds(60)).value(), 130) << run.process().error_output();
  const Outcome ended = RunOxbow({"status", "--run", directory});
  EXPECT_EQ(ended.exit_code, 0) << ended.message;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("run        run  (interrupted"), HasSubstr("learning"),
                                  HasSubstr("oxbow resume")));
  EXPECT_THAT(run.process().output(), ContainsRegex("interrupted at step [0-9]+ of 500; go on"));
  EXPECT_THAT(Content(run.directory() / "metrics.jsonl"), HasSubstr("\"time/unfinished_"));
}

TEST_F(CommandTest, AResolvedConfigurationSaysWhereValuesAreFromAndResolvesToItself) {
  const Outcome first = RunOxbow({"config", "show", kSource + "/configs/digits.yaml", "--resolved",
                                  "--set", "batch.groups=16"});
  ASSERT_EQ(first.exit_code, 0) << first.message;
  EXPECT_THAT(first.output, AllOf(ContainsRegex("  groups: 16 +# --set\n"),
                                  ContainsRegex("  name: digits +# .*digits.yaml:[0-9]+\n"),
                                  ContainsRegex("  group_size: [0-9]+ +# ")));
  const std::filesystem::path file = scratch_.path() / "resolved.yaml";
  std::ofstream(file) << first.output;
  const Outcome second = RunOxbow({"config", "show", file.string(), "--resolved"});
  ASSERT_EQ(second.exit_code, 0) << second.message;
  const std::regex source(" +# [^\n]*");
  EXPECT_EQ(std::regex_replace(first.output, source, ""),
            std::regex_replace(second.output, source, ""));
}

TEST_F(CommandTest, WhatIsMissingIsNamed) {
  const Outcome model = RunOxbow({"sample", "--model", "/nowhere/model", "--prompt", "text 123"});
  EXPECT_EQ(model.exit_code, 4);
  EXPECT_THAT(model.message, HasSubstr("/nowhere/model"));
  const Outcome prompts = RunOxbow({"eval", "--model", kBase, "--prompts", "/nowhere/prompts"});
  EXPECT_EQ(prompts.exit_code, 4);
  EXPECT_THAT(prompts.message, HasSubstr("/nowhere/prompts"));
  EXPECT_EQ(RunOxbow({"sample", "--prompt", "text 123"}).exit_code, 2) << "no model, no run";
  const Outcome report = RunOxbow({"report", scratch_.path().string()});
  EXPECT_EQ(report.exit_code, 4);
  EXPECT_THAT(report.message, HasSubstr("metrics.jsonl"));
}

// A machine that is not this one: which process is where, and whether it fits.
TEST_F(CommandTest, ValidatePlansForTheGpusOfAnotherMachine) {
  const auto validate = [](const std::string& gpus) {
    return RunOxbow({"validate", kSource + "/configs/digits.yaml", "--set", "model.device=cuda",
                     "--set", "learner.ranks=auto", "--set", "services.rollout_workers=auto",
                     "--gpus", gpus});
  };
  const Outcome fits = validate("8x80");
  EXPECT_EQ(fits.exit_code, 0) << fits.message;
  EXPECT_THAT(fits.output, AllOf(ContainsRegex("learner rank 0 +cuda:0 "),
                                 ContainsRegex("learner ranks 1-7 +cuda:1-7 "),
                                 ContainsRegex("rollout workers 0-7 +cuda:0-7 "),
                                 ContainsRegex("together there +cuda:0-7 .* of 80.0 GiB")));
  const Outcome small = validate("1x0.1");
  EXPECT_EQ(small.exit_code, 7) << small.message;
  EXPECT_THAT(small.message, ContainsRegex("on cuda:0 a learner rank takes.*\n.*on cuda:0 a "))
      << "above the plan and below it";
  EXPECT_EQ(validate("eight").exit_code, 2);
}

}  // namespace
}  // namespace oxbow::testing
