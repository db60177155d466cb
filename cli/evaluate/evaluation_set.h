// SPDX-License-Identifier: Apache-2.0
// The sets of `oxbow eval --set`: which prompts, how many pictures of each, which rewards, and how
// the values are summed up (proto/oxbow/v1/evaluation_set.proto). configs/sets has definitions of
// published ones, which every binary has; the prompts are the user's own files.
//
//   FILE.json    a list of texts, as HPSv2's benchmark has them
//   other files  as a run's prompts (run/prompt_files.h); here every line counts
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/evaluate/reward_servers.h"
#include "oxbow/v1/common.pb.h"
#include "oxbow/v1/evaluation_set.pb.h"

namespace oxbow::cli {

// Reads a definition and fills in what it leaves out: one picture from seed 0, scale 1, the mean
// over prompts, GenEval's layout. With a slash or ".yaml" it is the path of a file, else the name
// of one of configs/sets. kNotFound or kInvalidArgument in one line, with its place.
absl::StatusOr<v1::EvaluationSet> ReadEvaluationSet(const std::string& name_or_path);

// Sets "REWARD.KEY=VALUE", a key of a reward of the set. kInvalidArgument names what is unknown.
absl::Status SetRewardKey(const std::string& assignment, v1::EvaluationSet& set);

// Whether this build has all rewards of the set but those of `servers`. kInvalidArgument or
// kNotFound names the first that it has not, or what is wrong with its entry.
absl::Status CheckRewards(const v1::EvaluationSet& set, const RewardServers& servers = {});

struct SetPrompt {
  v1::Prompt prompt;
  std::string group;          // Empty: the set has no groups.
  size_t number = 0;          // In the set.
  size_t number_in_file = 0;  // In its file.
};

// All prompts in order. kNotFound without a file; kInvalidArgument for a set without a path to its
// prompts, for a bad line, and for a prompt without the key that groups them.
absl::StatusOr<std::vector<SetPrompt>> ReadSetPrompts(const v1::EvaluationSet& set);

// Pictures of each prompt.
size_t PicturesPerPrompt(const v1::EvaluationSet& set);

// A run's own held-out prompts and rewards as a set, with the pictures of one seed.
v1::EvaluationSet SetOfRun(const v1::RunConfig& config);

}  // namespace oxbow::cli
