// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/first_part.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/model/drawn_images.h"
#include "cli/model/eval_set.h"
#include "cli/model/trained_part.h"
#include "cli/run/work_progress.h"
#include "cli/run_option.h"
#include "config/file_paths.h"
#include "config/run_config.h"
#include "core/reward/synthetic_task.h"
#include "rpc/tls_flags.h"
#include "run/prompt_files.h"
#include "run/rewards.h"

namespace oxbow::cli {
namespace {

constexpr char kDigits[] = "configs/prompts/digits_eval.txt";  // For a model without a run.
constexpr size_t kPromptShown = 80;                            // Bytes of a prompt in a message.
constexpr uint32_t kImages = 128;
constexpr uint32_t kImagesMax = 100'000;

struct EvalFlags {
  EvalSetFlags of_set;  // With --set.
  ModelSource source;
  std::string prompts;
  std::string images;  // A number, or with --set a folder.
  ImageOptions drawing;
  bool json = false;
};

// Exactly one of --model, --run and, with a set, --images.
absl::Status CheckSource(const EvalFlags& flags) {
  const bool set = !flags.of_set.set.empty();
  const int sources = int{!flags.source.model.empty()} + int{!flags.source.run.empty()} +
                      int{set && !flags.images.empty()};
  if (!set && !flags.of_set.export_images.empty() && flags.source.run.empty()) {
    return absl::InvalidArgumentError(
        "without --set, --export-images writes pictures of a run's held-out prompts: give --run");
  }
  if (sources == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(set ? "give one of --run, --model and --images"
                                        : "give one of --run and --model");
}

absl::StatusOr<uint32_t> CountOf(const std::string& images) {
  uint32_t count = kImages;
  if (!images.empty() && (!absl::SimpleAtoi(images, &count) || count < 1 || count > kImagesMax)) {
    return absl::InvalidArgumentError(absl::StrCat("--images takes a number up to ", kImagesMax,
                                                   ", with --set a folder: ", images));
  }
  return count;
}

// The default prompts, looked for from the model's directory up where they are not in the working
// directory, as those of a run's file are.
std::string DefaultPrompts(const std::filesystem::path& model) {
  v1::RunConfig config;
  config.mutable_prompts()->set_eval(kDigits);
  std::error_code ignored;
  config::FindFilesFrom(
      std::filesystem::absolute(model, ignored),
      [&](const std::filesystem::path& path) { return std::filesystem::exists(path, ignored); },
      config);
  return config.prompts().eval();
}

// The file of prompts: what the flag names, else the held-out prompts of the run.
absl::StatusOr<std::string> PromptsOf(const EvalFlags& flags) {
  if (!flags.prompts.empty()) return flags.prompts;
  if (flags.source.run.empty()) return DefaultPrompts(flags.source.model);
  OXBOW_ASSIGN_OR_RETURN(const v1::RunConfig config, ConfigOfRun(flags.source.run));
  OXBOW_ASSIGN_OR_RETURN(const std::filesystem::path file,
                         run::PromptFile(config.prompts().eval(), run::PromptSplit::kHeldOut));
  return file.string();
}

// Whether no synthetic task measures the run: then its own rewards do.
absl::StatusOr<bool> NeedsOwnRewards(const EvalFlags& flags, const std::string& file) {
  if (flags.source.run.empty()) return false;
  OXBOW_ASSIGN_OR_RETURN(const v1::RunConfig config, ConfigOfRun(flags.source.run));
  OXBOW_ASSIGN_OR_RETURN(const auto prompts, run::ReadPrompts(file, run::PromptSplit::kHeldOut));
  return run::MeasuredTask(config.reward(), prompts.front().text()) == nullptr;
}

// Whole rounds over the prompts, at least one: as near to `images` as that allows from above.
absl::StatusOr<std::vector<reward::Measure>> Evaluate(EvalFlags flags, const std::string& file) {
  OXBOW_ASSIGN_OR_RETURN(const uint32_t wanted, CountOf(flags.images));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadPromptFile(file));
  const reward::SyntheticTask* const task = reward::TaskOfPrompt(prompts.front());
  if (task == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prompt is of no synthetic task, the only prompts that can be measured here; others are "
        "measured by rewards: give --set, or --run of a run that has some: ",
        FirstPart(prompts.front(), kPromptShown)));
  }
  flags.drawing.per_prompt = RoundsFor(wanted, prompts.size());
  WorkProgress progress("eval");
  OXBOW_ASSIGN_OR_RETURN(const std::vector<DrawnImage> images,
                         DrawImages(flags.source, prompts, flags.drawing, progress));
  const std::unique_ptr<reward::TaskReport> report = task->NewReport();
  for (const DrawnImage& drawn : images) {
    OXBOW_RETURN_IF_ERROR(report->Add(drawn.prompt, reward::PixelsOf(drawn.frames)));
  }
  return report->Report();
}

void PrintTable(const std::vector<reward::Measure>& report) {
  for (const reward::Measure& measure : report) {
    std::printf("%-18s  %.4g\n", measure.name.c_str(), measure.value);
  }
}

void PrintJson(const std::vector<reward::Measure>& report) {
  nlohmann::ordered_json json;
  for (const reward::Measure& measure : report) json[measure.name] = measure.value;
  std::cout << json.dump() << "\n";
}

absl::Status MeasureTask(const EvalFlags& flags, const std::string& file) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<reward::Measure> report, Evaluate(flags, file));
  flags.json ? PrintJson(report) : PrintTable(report);
  return absl::OkStatus();
}

absl::Status Evaluate(const EvalFlags& flags) {
  OXBOW_RETURN_IF_ERROR(CheckSource(flags));
  EvalSetFlags of_set = flags.of_set;
  of_set.prompts = flags.prompts;
  if (of_set.set.empty()) {
    OXBOW_ASSIGN_OR_RETURN(of_set.prompts, PromptsOf(flags));
    OXBOW_ASSIGN_OR_RETURN(const bool own_rewards, NeedsOwnRewards(flags, of_set.prompts));
    if (!own_rewards && of_set.export_images.empty()) return MeasureTask(flags, of_set.prompts);
    if (!flags.images.empty()) {
      OXBOW_ASSIGN_OR_RETURN(of_set.pictures, CountOf(flags.images));
    }
  }
  of_set.source = flags.source;
  if (!of_set.set.empty()) of_set.images = flags.images;
  of_set.drawing = flags.drawing;
  of_set.json = flags.json;
  return EvaluateSet(of_set);
}

std::string SetNames() {
  std::string names;
  for (const auto& [name, text] : config::EvaluationSets()) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  }
  return names;
}

void AddSetFlags(CLI::App& command, EvalSetFlags& flags) {
  CLI::Option* const set = command.add_option(
      "--set", flags.set, absl::StrCat("set of prompts: ", SetNames(), "; or a .yaml file"));
  command.add_option("--key", flags.keys, "REWARD.KEY=VALUE: a key of a reward of the set")
      ->allow_extra_args(false)
      ->needs(set);
  command
      .add_option(
          "--endpoint", flags.endpoints,
          "HOST:PORT of a server that has the rewards whose entries are a name alone, again "
          "for each; default: those of the run")
      ->allow_extra_args(false)
      ->needs(set);
  command.add_option("--against", flags.against, "another run, model or folder, compared with it")
      ->needs(set);
  CLI::Option* const folder =
      command.add_option("--export-images,--save", flags.export_images,
                         "folder to write the pictures into, in place of scoring them");
  command.add_option("--layout", flags.layout, "of the folder, in place of the set's")
      ->check(CLI::IsMember({"geneval", "hpsv2", "t2i_compbench", "t2i-compbench"}));
  command.add_option("--html", flags.html, "file to write the report into")
      ->needs(set)
      ->excludes(folder);
  command.add_option("--bootstrap-seed", flags.bootstrap_seed, "of the intervals")
      ->capture_default_str()
      ->needs(set);
}

}  // namespace

void AddEval(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<EvalFlags>();
  CLI::App* const command = app.add_subcommand(kEval.name, kEval.says);
  command->footer(
      "Without --set: a run's own held-out prompts; reward, strict, speckle and diversity on "
      "those\n"
      "of an embedded task that trains on its rewards, else the run's own rewards.\n"
      "Exit code 4 if a picture of a set has no score.\n"
      "Examples: oxbow eval runs/digits --json\n"
      "  oxbow eval --model DIR --set pickscore --prompts test.txt "
      "--key pickscore.model=DIR");
  AddModelFlag(*command, flags->source.model);
  AddRunDirectory(*command, flags->source.run,
                  "directory of a run: what its newest checkpoint has");
  command->add_option("--prompts", flags->prompts,
                      "file, one prompt per line (the held-out prompts of the run); of a set: its "
                      "file, or the directory of its files");
  command->add_option("--images", flags->images,
                      absl::StrCat("images, rounded up to whole rounds of prompts (", kImages,
                                   "); with --set: folder of pictures to measure"));
  AddSetFlags(*command, flags->of_set);
  rpc::AddTlsFlags(*command, flags->of_set.tls);
  AddImageFlags(*command, flags->drawing);
  command->add_flag("--json", flags->json, "for programs");
  CLI::Option* const seed = command->get_option("--seed");
  command->callback([flags, seed, &exit_code] {
    if (seed->count() > 0) flags->of_set.seed = flags->drawing.seed;
    const absl::Status status = Evaluate(*flags);
    exit_code = ExitCodeOf(status);
    if (!status.ok()) std::cerr << "oxbow eval: " << status.message() << "\n";
  });
}

}  // namespace oxbow::cli
