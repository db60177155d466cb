// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/first_part.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/evaluate/evaluation_set.h"
#include "cli/evaluate/evaluation_table.h"
#include "cli/evaluate/picture_folder.h"
#include "cli/model/drawn_pictures.h"
#include "cli/model/trained_part.h"
#include "cli/run/work_progress.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "config/file_paths.h"
#include "config/run_config.h"
#include "config/yaml_message.h"
#include "core/reward/synthetic_task.h"
#include "rpc/tls.h"
#include "rpc/tls_flags.h"
#include "run/prompt_files.h"
#include "run/rewards.h"
#include "services/reward/scorer_table.h"

namespace oxbow::cli {

namespace {

constexpr char kDigits[] = "configs/prompts/digits_eval.txt";  // For a model without a run.
constexpr size_t kPromptShown = 80;                            // Bytes of a prompt in a message.
constexpr uint32_t kImages = 128;
constexpr uint32_t kImagesMax = 100'000;
constexpr size_t kPicturesAtATime = 64;

struct EvalFlags {
  ModelSource source;             // Neither, with a set: `images`.
  std::string set;                // The definition; empty: the run's own prompts and rewards.
  std::string prompts;            // Path of them; empty: what the set or the run says.
  std::vector<std::string> keys;  // REWARD.KEY=VALUE
  // HOST:PORT of servers that have the rewards; empty: those of the run, if it has any.
  std::vector<std::string> endpoints;
  rpc::TlsOptions tls;        // For connections to them.
  std::string images;         // A number; with a set a folder of pictures in its layout.
  std::string against;        // Another run, model or folder, by what it holds.
  std::string export_images;  // Folder to write pictures into, in place of scoring them.
  std::string layout;         // Empty: the set's.
  DrawingOptions drawing;
  std::optional<uint64_t> seed;  // In place of the set's seeds.
  uint64_t bootstrap_seed = 0;
  std::string html;  // File to write.
  bool json = false;
};

struct Source {
  ModelSource model;
  std::string images;

  std::string name() const {
    return !model.run.empty() ? model.run : !model.model.empty() ? model.model : images;
  }
};

// A model, a run or a folder of pictures, by what is in it.
Source SourceAt(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path directory = path;
  if (std::filesystem::exists(directory / "model_index.json", ignored)) {
    return {.model = {.model = path, .run = {}}, .images = {}};
  }
  if (std::filesystem::exists(directory / "config.resolved.yaml", ignored)) {
    return {.model = {.model = {}, .run = path}, .images = {}};
  }
  return {.model = {}, .images = path};
}

absl::StatusOr<v1::EvaluationSet> SetOf(const EvalFlags& flags) {
  v1::EvaluationSet set;
  if (!flags.set.empty()) {
    OXBOW_ASSIGN_OR_RETURN(set, ReadEvaluationSet(flags.set));
  } else {
    OXBOW_ASSIGN_OR_RETURN(const v1::RunConfig config, ConfigOfRun(flags.source.run));
    set = SetOfRun(config);
  }
  if (!flags.prompts.empty()) set.set_prompts(flags.prompts);
  for (const std::string& key : flags.keys) OXBOW_RETURN_IF_ERROR(SetRewardKey(key, set));
  if (flags.seed.has_value()) {
    set.clear_seeds();
    set.add_seeds(*flags.seed);
  }
  if (!flags.layout.empty()) {
    OXBOW_RETURN_IF_ERROR(config::SetByText("layout",
                                            absl::StrReplaceAll(flags.layout, {{"-", "_"}}),
                                            {.name = "--layout"}, &set, nullptr));
  }
  return set;
}

// All pictures of each prompt: those of the first seed come first.
absl::StatusOr<std::vector<Pictures>> Draw(const v1::EvaluationSet& set, PictureDrawer& drawer,
                                           const std::vector<SetPrompt>& prompts, size_t first,
                                           size_t last) {
  std::vector<std::string> texts;
  for (size_t i = first; i < last; ++i) texts.push_back(prompts[i].prompt.text());
  std::vector<Pictures> pictures(texts.size());
  for (const uint64_t seed : set.seeds()) {
    OXBOW_ASSIGN_OR_RETURN(Pictures drawn, drawer.Draw(texts, set.per_prompt(), seed, first));
    for (size_t i = 0; i < drawn.size(); ++i) {
      pictures[i / set.per_prompt()].push_back(std::move(drawn[i]));
    }
  }
  return pictures;
}

absl::StatusOr<PicturesOf> PicturesFrom(const Source& source, const v1::EvaluationSet& set,
                                        const std::vector<SetPrompt>& prompts,
                                        const DrawingOptions& drawing, WorkProgress& progress) {
  const uint64_t total = prompts.size() * PicturesPerPrompt(set);
  if (source.images.empty()) {
    progress.Begin("loading the model");
    OXBOW_ASSIGN_OR_RETURN(
        std::shared_ptr<PictureDrawer> drawer,
        PictureDrawer::Open(source.model, prompts.front().prompt.text(), drawing));
    progress.Begin("drawing and scoring");
    drawer->ReportTo(progress, total);
    return [set, drawer](const std::vector<SetPrompt>& all, size_t first, size_t last) {
      return Draw(set, *drawer, all, first, last);
    };
  }
  OXBOW_ASSIGN_OR_RETURN(
      const PictureFolder folder,
      PictureFolder::Create(source.images, set.layout(), PicturesPerPrompt(set)));
  progress.Begin("drawing and scoring");
  return [folder, total, &progress](const std::vector<SetPrompt>& all, size_t first,
                                    size_t last) -> absl::StatusOr<std::vector<Pictures>> {
    progress.Count(static_cast<double>(total * first / all.size()), total, "pictures");
    std::vector<Pictures> pictures;
    for (size_t i = first; i < last; ++i) {
      OXBOW_ASSIGN_OR_RETURN(Pictures read, folder.Read(all[i]));
      pictures.push_back(std::move(read));
    }
    return pictures;
  };
}

size_t ChunkOf(const v1::EvaluationSet& set) {
  return std::max<size_t>(1, kPicturesAtATime / PicturesPerPrompt(set));
}

absl::Status ExportSet(const EvalFlags& flags, const v1::EvaluationSet& set,
                       const std::vector<SetPrompt>& prompts, const PicturesOf& pictures) {
  OXBOW_ASSIGN_OR_RETURN(
      const PictureFolder folder,
      PictureFolder::Create(flags.export_images, set.layout(), PicturesPerPrompt(set)));
  // Before the first picture is drawn: a prompt may be unfit for a name.
  for (const SetPrompt& prompt : prompts) OXBOW_RETURN_IF_ERROR(folder.PathOf(prompt, 0).status());
  for (size_t first = 0; first < prompts.size(); first += ChunkOf(set)) {
    const size_t last = std::min(first + ChunkOf(set), prompts.size());
    OXBOW_ASSIGN_OR_RETURN(const std::vector<Pictures> part, pictures(prompts, first, last));
    for (size_t i = 0; i < part.size(); ++i) {
      OXBOW_RETURN_IF_ERROR(folder.Write(prompts[first + i], part[i]));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RewardServers> ServersOf(const EvalFlags& flags) {
  RewardServers servers(flags.endpoints);
  if (flags.endpoints.empty()) {
    if (flags.source.run.empty()) return servers;
    const std::filesystem::path run = flags.source.run;
    OXBOW_ASSIGN_OR_RETURN(const v1::RunConfig config, ConfigOfRun(run));
    servers = RewardServers(config.reward());
  }
  OXBOW_RETURN_IF_ERROR(rpc::UseTls(flags.tls).status());
  return servers;
}

absl::StatusOr<std::vector<std::unique_ptr<reward::Scorer>>> ScorersOf(
    const v1::EvaluationSet& set, const RewardServers& servers) {
  std::vector<std::unique_ptr<reward::Scorer>> scorers;
  for (const v1::ScorerConfig& entry : set.rewards()) {
    OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<reward::Scorer> scorer, servers.Have(entry)
                                                                       ? servers.Open(entry.name())
                                                                       : reward::MakeScorer(entry));
    scorers.push_back(std::move(scorer));
  }
  return scorers;
}

absl::Status PrintReport(const EvalFlags& flags, const SetReport& report) {
  std::cout << (flags.json ? ReportJson(report) : ReportText(report));
  if (!flags.html.empty()) {
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(flags.html, ReportHtml(report)));
  }
  size_t failed = 0;
  for (const SetValues& evaluation : report.evaluations) failed += evaluation.failed();
  if (failed == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(failed, " scores are missing"));
}

// Rounds over so many prompts, at least one, that give at least `pictures`. Requires a prompt.
uint32_t RoundsFor(uint32_t pictures, size_t prompts) {
  const auto count = static_cast<uint32_t>(prompts);
  return std::max(1U, (pictures + count - 1) / count);
}

// Prints the report. `pictures`: whole rounds over the prompts, at least so many; 0: as the set
// says. kDataLoss if a picture has no score; else the errors of what it reads.
absl::Status EvaluateSet(const EvalFlags& flags, uint32_t pictures) {
  const bool scored = flags.export_images.empty();
  if (!flags.html.empty()) OXBOW_RETURN_IF_ERROR(CheckPlace(flags.html));
  if (!scored) OXBOW_RETURN_IF_ERROR(CheckPlace(flags.export_images, /*folder=*/true));
  OXBOW_ASSIGN_OR_RETURN(v1::EvaluationSet set, SetOf(flags));
  RewardServers servers;
  if (scored) {
    OXBOW_ASSIGN_OR_RETURN(servers, ServersOf(flags));
    OXBOW_RETURN_IF_ERROR(CheckRewards(set, servers));
  }
  OXBOW_ASSIGN_OR_RETURN(const std::vector<SetPrompt> prompts, ReadSetPrompts(set));
  if (pictures > 0) set.set_per_prompt(RoundsFor(pictures, prompts.size()));
  const Source source{.model = flags.source, .images = flags.set.empty() ? "" : flags.images};
  auto progress = std::make_unique<WorkProgress>("eval");
  if (!scored) {
    OXBOW_ASSIGN_OR_RETURN(const PicturesOf drawn,
                           PicturesFrom(source, set, prompts, flags.drawing, *progress));
    OXBOW_RETURN_IF_ERROR(ExportSet(flags, set, prompts, drawn));
    progress.reset();
    std::cout << flags.export_images << "\n";
    return absl::OkStatus();
  }
  progress->Begin("loading the rewards");
  OXBOW_ASSIGN_OR_RETURN(const auto scorers, ScorersOf(set, servers));
  std::vector<Source> sources = {source};
  if (!flags.against.empty()) sources.push_back(SourceAt(flags.against));
  std::vector<SetValues> evaluations;
  for (const Source& one : sources) {
    OXBOW_ASSIGN_OR_RETURN(const PicturesOf drawn,
                           PicturesFrom(one, set, prompts, flags.drawing, *progress));
    OXBOW_ASSIGN_OR_RETURN(SetValues evaluation,
                           Evaluate(prompts, ChunkOf(set), one.name(), drawn, scorers));
    evaluations.push_back(std::move(evaluation));
  }
  progress.reset();
  return PrintReport(flags, Report(set, prompts, std::move(evaluations), flags.bootstrap_seed));
}

// Exactly one of --model, --run and, with a set, --images.
absl::Status CheckSource(const EvalFlags& flags) {
  const bool set = !flags.set.empty();
  const int sources = int{!flags.source.model.empty()} + int{!flags.source.run.empty()} +
                      int{set && !flags.images.empty()};
  if (!set && !flags.export_images.empty() && flags.source.run.empty()) {
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
  config::FindFilesFrom(model, config);
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
absl::StatusOr<bool> NeedsOwnRewards(const EvalFlags& flags) {
  if (flags.source.run.empty()) return false;
  OXBOW_ASSIGN_OR_RETURN(const v1::RunConfig config, ConfigOfRun(flags.source.run));
  OXBOW_ASSIGN_OR_RETURN(const auto prompts,
                         run::ReadPrompts(flags.prompts, run::PromptSplit::kHeldOut));
  return run::MeasuredTask(config.reward(), prompts.front().text()) == nullptr;
}

// Prints what the task of the prompts measures, over whole rounds of them, at least one: as near to
// `images` as that allows from above.
absl::Status MeasureTask(EvalFlags flags) {
  OXBOW_ASSIGN_OR_RETURN(const uint32_t wanted, CountOf(flags.images));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadPromptFile(flags.prompts));
  const reward::SyntheticTask* const task = reward::TaskOfPrompt(prompts.front());
  if (task == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prompt is of no synthetic task, the only prompts that can be measured here; others are "
        "measured by rewards: give --set, or --run of a run that has some: ",
        FirstPart(prompts.front(), kPromptShown)));
  }
  flags.drawing.per_prompt = RoundsFor(wanted, prompts.size());
  auto progress = std::make_unique<WorkProgress>("eval");
  OXBOW_ASSIGN_OR_RETURN(const std::vector<DrawnPicture> pictures,
                         DrawPictures(flags.source, prompts, flags.drawing, *progress));
  const std::unique_ptr<reward::TaskReport> report = task->NewReport();
  for (const DrawnPicture& drawn : pictures) {
    OXBOW_RETURN_IF_ERROR(report->Add(drawn.prompt, reward::PixelsOf(drawn.frames)));
  }
  const std::vector<reward::Measure> measures = report->Report();
  progress.reset();
  nlohmann::ordered_json json;
  std::string table;
  for (const reward::Measure& measure : measures) {
    json[measure.name] = measure.value;
    absl::StrAppendFormat(&table, "%-18s  %.4g\n", measure.name, measure.value);
  }
  std::cout << (flags.json ? json.dump() + "\n" : table);
  return absl::OkStatus();
}

absl::Status Evaluate(EvalFlags flags) {
  OXBOW_RETURN_IF_ERROR(CheckSource(flags));
  if (!flags.set.empty()) return EvaluateSet(flags, /*pictures=*/0);
  OXBOW_ASSIGN_OR_RETURN(flags.prompts, PromptsOf(flags));
  OXBOW_ASSIGN_OR_RETURN(const bool own_rewards, NeedsOwnRewards(flags));
  if (!own_rewards && flags.export_images.empty()) return MeasureTask(flags);
  uint32_t pictures = 0;
  if (!flags.images.empty()) {
    OXBOW_ASSIGN_OR_RETURN(pictures, CountOf(flags.images));
  }
  return EvaluateSet(flags, pictures);
}

void AddSetFlags(CLI::App& command, EvalFlags& flags) {
  CLI::Option* const set = command.add_option(
      "--set", flags.set,
      absl::StrCat("set of prompts: ",
                   absl::StrJoin(config::EvaluationSets(), ", ",
                                 [](std::string* out, const auto& one) { *out += one.first; }),
                   "; or a .yaml file"));
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
  AddSetFlags(*command, *flags);
  rpc::AddTlsFlags(*command, flags->tls);
  AddDrawingFlags(*command, flags->drawing);
  command->add_flag("--json", flags->json, "for programs");
  CLI::Option* const seed = command->get_option("--seed");
  command->callback([flags, seed, &exit_code] {
    if (seed->count() > 0) flags->seed = flags->drawing.seed;
    exit_code = Ended("eval", Evaluate(*flags));
  });
}

}  // namespace oxbow::cli
