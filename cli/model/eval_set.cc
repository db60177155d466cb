// SPDX-License-Identifier: Apache-2.0
#include "cli/model/eval_set.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/evaluate/evaluation_set.h"
#include "cli/evaluate/evaluation_table.h"
#include "cli/evaluate/picture_folder.h"
#include "cli/evaluate/reward_servers.h"
#include "cli/evaluate/set_values.h"
#include "cli/model/trained_part.h"
#include "cli/run/work_progress.h"
#include "config/run_config.h"
#include "config/yaml_message.h"
#include "services/reward/scorer_table.h"

namespace oxbow::cli {
namespace {

constexpr size_t kPicturesAtATime = 64;

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

absl::StatusOr<v1::EvaluationSet> SetOf(const EvalSetFlags& flags) {
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
absl::StatusOr<std::vector<Pictures>> Draw(const v1::EvaluationSet& set, ImageDrawer& drawer,
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
                                        const ImageOptions& drawing, WorkProgress& progress) {
  const uint64_t total = prompts.size() * PicturesPerPrompt(set);
  if (source.images.empty()) {
    progress.Begin("loading the model");
    OXBOW_ASSIGN_OR_RETURN(std::shared_ptr<ImageDrawer> drawer,
                           ImageDrawer::Open(source.model, prompts.front().prompt.text(), drawing));
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

absl::Status ExportSet(const EvalSetFlags& flags, const v1::EvaluationSet& set,
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

absl::StatusOr<RewardServers> ServersOf(const EvalSetFlags& flags) {
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

absl::Status PrintReport(const EvalSetFlags& flags, const SetReport& report) {
  std::cout << (flags.json ? ReportJson(report) : ReportText(report));
  if (!flags.html.empty()) {
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(flags.html, ReportHtml(report)));
  }
  size_t failed = 0;
  for (const SetValues& evaluation : report.evaluations) failed += evaluation.failed();
  if (failed == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(failed, " scores are missing"));
}

}  // namespace

uint32_t RoundsFor(uint32_t pictures, size_t prompts) {
  const auto count = static_cast<uint32_t>(prompts);
  return std::max(1U, (pictures + count - 1) / count);
}

absl::Status EvaluateSet(const EvalSetFlags& flags) {
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
  if (flags.pictures > 0) set.set_per_prompt(RoundsFor(flags.pictures, prompts.size()));
  const Source source{.model = flags.source, .images = flags.images};
  auto progress = std::make_unique<WorkProgress>("eval");
  if (!scored) {
    OXBOW_ASSIGN_OR_RETURN(const PicturesOf pictures,
                           PicturesFrom(source, set, prompts, flags.drawing, *progress));
    OXBOW_RETURN_IF_ERROR(ExportSet(flags, set, prompts, pictures));
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
    OXBOW_ASSIGN_OR_RETURN(const PicturesOf pictures,
                           PicturesFrom(one, set, prompts, flags.drawing, *progress));
    OXBOW_ASSIGN_OR_RETURN(SetValues evaluation,
                           Evaluate(prompts, ChunkOf(set), one.name(), pictures, scorers));
    evaluations.push_back(std::move(evaluation));
  }
  progress.reset();
  return PrintReport(flags, Report(set, prompts, std::move(evaluations), flags.bootstrap_seed));
}

}  // namespace oxbow::cli
