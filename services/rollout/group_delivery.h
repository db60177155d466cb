// SPDX-License-Identifier: Apache-2.0
// Delivery of a sampled group: its scores, and its way to the learner rank that holds it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "core/rl/experience.h"
#include "services/reward/reward_client.h"
#include "services/rollout/experience_sender.h"
#include "services/rollout/group_sampler.h"
#include "services/rollout/learner_link.h"

namespace oxbow::rollout {

// Samples without a score, and the reason of the last one.
struct Unscored {
  uint32_t samples = 0;
  absl::Status reason;
  std::map<std::string, uint32_t> observed;  // Scored samples without this observed reward.
};

// Fills rewards of `samples` from one result per sample. An image without a score is
//   fail         -> the whole group fails: an error that names image and reason
//   drop_sample  -> reward_failed is set; the sample counts in no statistic
//   drop_group   -> reward_failed is set for every sample
// and never a reward of 0. An observed reward that is missing is counted, and changes nothing else.
// If the lease drops unscored samples (`drops`), `fail` is `drop_sample`; so it is for an image of
// which the server says that it cannot be scored (reward::IsFinal), since the group would be drawn
// again with the same one. If some image could not be scored because no server answers, returns
// that status, for which reward::IsUnscorable is false, whatever the config says.
absl::StatusOr<Unscored> ApplyScores(const v1::RewardConfig& config, bool drops,
                                     const std::vector<absl::StatusOr<reward::Scores>>& scores,
                                     std::vector<rl::Trajectory>& samples);

// Thread-safe.
class GroupDelivery {
 public:
  // All outlive it.
  GroupDelivery(const RunSpec& spec, reward::RewardClient& rewards, LearnerLink& link,
                RolloutMetrics& metrics, const Clock& clock);

  // Scores the group of `lease` and sends it until the learner answers or nobody waits for it, and
  // tells the link how that ended. Scoring waits for a reward server as long as the session lasts;
  // the lease is renewed meanwhile.
  void Deliver(const v1::Lease& lease, SampledGroup sampled, double sample_seconds);

  // Ends all calls to sinks.
  void Cancel();

 private:
  bool TakeScores(const v1::Lease& lease, const std::vector<absl::StatusOr<reward::Scores>>& scores,
                  double seconds, SampledGroup& sampled);
  absl::StatusOr<v1::InsertResponse::Ack> Send(const v1::Lease& lease, SampledGroup sampled,
                                               double sample_seconds, double reward_seconds);
  void NotDelivered(const v1::Lease& lease, const absl::Status& why, double seconds);

  const RunSpec& spec_;
  reward::RewardClient& rewards_;
  LearnerLink& link_;
  RolloutMetrics& metrics_;
  const Clock& clock_;
  std::vector<std::unique_ptr<ExperienceSender>> senders_;  // By rank.
};

}  // namespace oxbow::rollout
