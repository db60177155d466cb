// SPDX-License-Identifier: Apache-2.0
// The groups of one sampled batch until each is delivered, and their scores. All are asked for
// together, once; what that does not bring, a group asks for by itself.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/reward/reward_client.h"
#include "services/rollout/group_sampler.h"

namespace oxbow::rollout {

class BatchScoring {
 public:
  // A lease for each group. `run_id` names their traces.
  BatchScoring(reward::RewardClient& rewards, std::vector<v1::Lease> leases,
               std::vector<SampledGroup> groups, std::string run_id);

  size_t size() const { return leases_.size(); }
  const v1::Lease& lease(size_t group) const { return leases_[group]; }

  // The first call asks for the scores of all groups together, later ones wait for it. How long
  // that took by `clock`, which is part of every group's scoring. On a thread without a trace.
  // Thread-safe.
  absl::Duration AskTogether(const Clock& clock);

  // One result for each image of the group, as RewardClient::ScoreMedia has them. Waits for a
  // reward server as long as the client does. After AskTogether; one thread for each group.
  std::vector<absl::StatusOr<reward::Scores>> Score(size_t group);

  // Hands the group over, with the memory of its pictures. After Score.
  SampledGroup Take(size_t group) { return std::move(groups_[group]); }

 private:
  reward::RewardClient::Group Asked(size_t group) const;

  reward::RewardClient& rewards_;
  const std::string run_id_;
  const std::vector<v1::Lease> leases_;
  std::vector<SampledGroup> groups_;
  absl::once_flag asked_;
  absl::Duration took_;
  std::vector<std::optional<std::vector<reward::Scores>>> together_;  // By group.
};

}  // namespace oxbow::rollout
