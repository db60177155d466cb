// SPDX-License-Identifier: Apache-2.0
#include "cli/model/score_files.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/run/work_progress.h"
#include "cli/terminal.h"
#include "config/yaml_message.h"
#include "io/film.h"
#include "services/reward/scorer_panel.h"
#include "services/reward/scorer_table.h"

namespace oxbow::cli {

namespace {

struct ScoreFlags {
  std::vector<std::string> images;
  v1::ScorerConfig scorer;
  std::vector<std::string> keys;
  v1::Prompt prompt;
  bool json = false;
};

absl::Status SetKey(const std::string& assignment, v1::ScorerConfig& scorer) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set takes KEY=VALUE, a key of reward.scorers: ", assignment));
  }
  return config::SetByText(assignment.substr(0, equals), assignment.substr(equals + 1),
                           {.name = "--set"}, &scorer, nullptr);
}

absl::Status ScoreGivenFiles(ScoreFlags& flags) {
  for (const std::string& key : flags.keys) OXBOW_RETURN_IF_ERROR(SetKey(key, flags.scorer));
  if (const std::string key = reward::MissingKey(flags.scorer); !key.empty()) {
    return Annotate(reward::CheckScorer(flags.scorer),
                    key == "model" ? "--model PATH" : absl::StrCat("--set ", key, "=VALUE"));
  }
  auto progress = std::make_unique<WorkProgress>("score");
  progress->Begin("loading the reward");
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<reward::Scorer> scorer,
                         reward::MakeScorer(flags.scorer));
  progress->Begin(absl::StrCat("scoring ", flags.images.size(), " files"));
  const std::vector<FileScore> scores = ScoreFiles(*scorer, flags.prompt, flags.images);
  progress.reset();
  std::cout << ScoresText(scorer->facts(), scores, flags.json);
  const auto failed = std::ranges::count_if(scores, [](const auto& of) { return !of.score.ok(); });
  if (failed == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(failed, " of ", scores.size(), " images have no score"));
}

constexpr uint64_t kScoredBytesMax = 256 << 20;

// The picture of a PNG or JPEG, or the frames of an animated PNG.
absl::StatusOr<std::vector<Image8>> ReadFrames(const std::string& file) {
  OXBOW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file, kScoredBytesMax));
  absl::StatusOr<io::Film> film = io::DecodePictureOrFilm(bytes);
  if (!film.ok()) return Annotate(film.status(), file);
  for (const Image8& frame : film->frames) OXBOW_RETURN_IF_ERROR(reward::Validate(frame));
  return std::move(film->frames);
}

}  // namespace

std::vector<FileScore> ScoreFiles(reward::Scorer& scorer, const v1::Prompt& prompt,
                                  const std::vector<std::string>& files) {
  std::vector<FileScore> scores;
  std::vector<std::vector<Image8>> media;
  std::vector<size_t> places;
  for (const std::string& file : files) {
    absl::StatusOr<std::vector<Image8>> frames = ReadFrames(file);
    scores.push_back({file, frames.ok() ? absl::UnknownError("not scored") : frames.status()});
    if (!frames.ok()) continue;
    places.push_back(scores.size() - 1);
    media.push_back(*std::move(frames));
  }
  std::vector<reward::Item> items;
  for (const std::vector<Image8>& frames : media) {
    items.push_back({.prompt = prompt.text(),
                     .metadata_json = prompt.metadata_json(),
                     .frames = frames,
                     .group = 1});
  }
  auto results = reward::ScoreItems(scorer, items);
  for (size_t i = 0; i < results.size(); ++i) scores[places[i]].score = std::move(results[i]);
  return scores;
}

std::string ScoresText(const reward::RewardFacts& facts, const std::vector<FileScore>& scores,
                       bool json) {
  nlohmann::ordered_json object = {{"reward", facts.name}, {"identity", facts.identity}};
  std::string text;
  for (const FileScore& of : scores) {
    nlohmann::ordered_json row = {{"image", of.file}};
    if (of.score.ok()) {
      row["score"] = of.score->value;
      if (!of.score->note.empty()) row["note"] = of.score->note;
      absl::StrAppendFormat(&text, "%-10.6g  %s%s%s\n", of.score->value, of.file,
                            of.score->note.empty() ? "" : "  ", of.score->note);
    } else {
      row["error"] = std::string(of.score.status().message());
      absl::StrAppendFormat(&text, "%-10s  %s  %s\n", "no score", of.file,
                            of.score.status().message());
    }
    object["scores"].push_back(std::move(row));
  }
  return json ? object.dump() + "\n" : text;
}

void AddScore(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<ScoreFlags>();
  CLI::App* const command = app.add_subcommand(kScore.name, kScore.says);
  command->footer(
      "Exit code 4 if an image has no score.\n"
      "Example: oxbow score a.png b.png --reward digits_ocr --prompt \"text 473\"");
  command->add_option("images", flags->images, "PNG files, also animated ones, and JPEG files")
      ->required();
  command
      ->add_option_function<std::string>(
          "--reward", [flags](const std::string& name) { flags->scorer.set_name(name); },
          "name of the reward")
      ->required();
  command->add_option_function<std::string>(
      "--model", [flags](const std::string& path) { flags->scorer.set_model(path); },
      "directory or file of its weights");
  command
      ->add_option("--set", flags->keys, "further keys of its entry in reward.scorers, KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option_function<std::string>(
      "--prompt", [flags](const std::string& text) { flags->prompt.set_text(text); },
      "what the images are to show");
  command->add_option_function<std::string>(
      "--metadata", [flags](const std::string& json) { flags->prompt.set_metadata_json(json); },
      "metadata of the prompt, a JSON object");
  command->add_flag("--json", flags->json, "for programs");
  command->callback([flags, &exit_code] { exit_code = Ended("score", ScoreGivenFiles(*flags)); });
}

}  // namespace oxbow::cli
