// SPDX-License-Identifier: Apache-2.0
#include "cli/model/score_files.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "io/film.h"
#include "services/reward/scorer_panel.h"

namespace oxbow::cli {
namespace {

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

}  // namespace oxbow::cli
