// SPDX-License-Identifier: Apache-2.0
// The sets of `oxbow eval --set`: which prompts, how many pictures of each, which rewards, and how
// the values are summed up (proto/oxbow/v1/evaluation_set.proto). configs/sets has definitions of
// published ones, which every binary has; the prompts are the user's own files.
//
//   FILE.json    a list of texts, as HPSv2's benchmark has them
//   other files  as a run's prompts (run/prompt_files.h); here every line counts
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/reward/scorer.h"
#include "oxbow/v1/common.pb.h"
#include "oxbow/v1/config.pb.h"
#include "oxbow/v1/evaluation_set.pb.h"

namespace oxbow::cli {

// The servers elsewhere that `oxbow eval --set` asks, and which rewards of a set are theirs.
//
// Only a reward that is a name alone may be theirs: one with other keys is made by this process.
class RewardServers {
 public:
  // None.
  RewardServers() = default;
  // Those at `endpoints` (HOST:PORT): every name alone is theirs.
  explicit RewardServers(std::vector<std::string> endpoints) : endpoints_(std::move(endpoints)) {}
  // The servers of a run, in its way: theirs are the names that it asks there, and those that this
  // build does not have.
  explicit RewardServers(const v1::RewardConfig& run);

  // Whether they are to score this reward of a set.
  bool Have(const v1::ScorerConfig& entry) const;

  // The reward as a scorer, without a wait for a server that is away: its items have an error then.
  // Errors as RewardClient::Create.
  absl::StatusOr<std::unique_ptr<reward::Scorer>> Open(const std::string& name) const;

 private:
  std::vector<std::string> endpoints_;
  bool of_run_ = false;
  std::set<std::string> names_;  // That a run asks them for.
  absl::Duration timeout_ = absl::Seconds(30);
  v1::PictureTransport transport_ = v1::PICTURE_TRANSPORT_RAW;
};

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
