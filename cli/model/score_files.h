// SPDX-License-Identifier: Apache-2.0
// The scores that a reward gives image files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/reward/scorer.h"
#include "oxbow/v1/common.pb.h"

namespace oxbow::cli {

struct FileScore {
  std::string file;
  absl::StatusOr<reward::Score> score;
};

// One score for each PNG or JPEG file, all of one prompt and one group. A file that is no picture,
// or that the scorer cannot score, has its error.
std::vector<FileScore> ScoreFiles(reward::Scorer& scorer, const v1::Prompt& prompt,
                                  const std::vector<std::string>& files);

// A line for each file: score, file, note. `json`: one object with the reward's name and identity.
std::string ScoresText(const reward::RewardFacts& facts, const std::vector<FileScore>& scores,
                       bool json);

}  // namespace oxbow::cli
