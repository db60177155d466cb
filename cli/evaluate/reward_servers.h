// SPDX-License-Identifier: Apache-2.0
// The servers elsewhere that `oxbow eval --set` asks, and which rewards of a set are theirs.
//
// Only a reward that is a name alone may be theirs: one with other keys is made by this process.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/reward/scorer.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {

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

}  // namespace oxbow::cli
