// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate/set_values.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "services/reward/scorer_panel.h"

namespace oxbow::cli {
namespace {

// Pictures of one chunk with what a scorer is told of them.
struct Chunk {
  std::vector<Pictures> pictures;
  std::vector<reward::Item> items;
  std::vector<size_t> prompt_of;  // The prompt of each item, by its number in the set.
};

// Fills items and prompt_of. kInvalidArgument for a picture that no server would take.
absl::Status List(const std::vector<SetPrompt>& prompts, size_t first, Chunk& chunk) {
  for (size_t i = 0; i < chunk.pictures.size(); ++i) {
    const SetPrompt& prompt = prompts[first + i];
    for (const std::vector<Image8>& frames : chunk.pictures[i]) {
      for (const Image8& frame : frames) OXBOW_RETURN_IF_ERROR(reward::Validate(frame));
      chunk.items.push_back({.prompt = prompt.prompt.text(),
                             .metadata_json = prompt.prompt.metadata_json(),
                             .frames = frames,
                             .group = first + i + 1});
      chunk.prompt_of.push_back(first + i);
    }
  }
  return absl::OkStatus();
}

void AddScores(reward::Scorer& scorer, const Chunk& chunk, RewardValues& values) {
  const auto scores = reward::ScoreItems(scorer, chunk.items);
  for (size_t i = 0; i < scores.size();) {
    const size_t prompt = chunk.prompt_of[i];
    double sum = 0;
    size_t count = 0;
    for (; i < scores.size() && chunk.prompt_of[i] == prompt; ++i) {
      if (scores[i].ok()) {
        sum += scores[i]->value;
        ++count;
      } else if (values.failed++ == 0) {
        values.failure = std::string(scores[i].status().message());
      }
    }
    if (count > 0) values.by_prompt[prompt] = sum / static_cast<double>(count);
  }
}

}  // namespace

size_t SetValues::failed() const {
  size_t sum = 0;
  for (const RewardValues& values : rewards) sum += values.failed;
  return sum;
}

absl::StatusOr<SetValues> Evaluate(const std::vector<SetPrompt>& prompts, size_t chunk,
                                   const std::string& source, const PicturesOf& pictures,
                                   const std::vector<std::unique_ptr<reward::Scorer>>& scorers) {
  SetValues evaluation{.source = source, .rewards = {}};
  for (const auto& scorer : scorers) {
    RewardValues values{.name = scorer->facts().name,
                        .identity = scorer->facts().identity,
                        .by_prompt = std::vector<std::optional<double>>(prompts.size())};
    evaluation.rewards.push_back(std::move(values));
  }
  for (size_t first = 0; first < prompts.size(); first += chunk) {
    const size_t last = std::min(first + chunk, prompts.size());
    Chunk part;
    OXBOW_ASSIGN_OR_RETURN(part.pictures, pictures(prompts, first, last));
    OXBOW_CHECK(part.pictures.size() == last - first) << part.pictures.size();
    OXBOW_RETURN_IF_ERROR(List(prompts, first, part));
    for (size_t i = 0; i < scorers.size(); ++i) {
      AddScores(*scorers[i], part, evaluation.rewards[i]);
    }
  }
  return evaluation;
}

}  // namespace oxbow::cli
