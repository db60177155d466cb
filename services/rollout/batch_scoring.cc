// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/batch_scoring.h"

#include <utility>

#include "base/ids.h"
#include "base/trace.h"

namespace oxbow::rollout {
namespace {

std::vector<reward::Frames> MediaOf(const SampledGroup& group) {
  return {group.media.begin(), group.media.end()};
}

}  // namespace

BatchScoring::BatchScoring(reward::RewardClient& rewards, std::vector<v1::Lease> leases,
                           std::vector<SampledGroup> groups, std::string run_id)
    : rewards_(rewards),
      run_id_(std::move(run_id)),
      leases_(std::move(leases)),
      groups_(std::move(groups)),
      together_(groups_.size()) {}

reward::RewardClient::Group BatchScoring::Asked(size_t group) const {
  const v1::Lease& lease = leases_[group];
  return {.prompt_text = lease.prompt().text(),
          .prompt_metadata_json = lease.prompt().metadata_json(),
          .media = MediaOf(groups_[group])};
}

absl::Duration BatchScoring::AskTogether(const Clock& clock) {
  absl::call_once(asked_, [&] {
    const absl::Duration start = clock.Now();
    std::vector<reward::RewardClient::Group> asked;
    for (size_t i = 0; i < groups_.size(); ++i) {
      asked.push_back(Asked(i));
      asked.back().trace =
          TraceOfGroup(run_id_, GroupId(leases_[i].group_id()), LeaseId(leases_[i].lease_id()));
    }
    together_ = rewards_.ScoreTogether(asked);
    took_ = clock.Now() - start;
  });
  return took_;
}

std::vector<absl::StatusOr<reward::Scores>> BatchScoring::Score(size_t group) {
  if (const auto& scores = together_[group]; scores.has_value()) {
    return rewards_.ScoreRest(Asked(group), *scores, {.waits = true});
  }
  const reward::RewardClient::Group asked = Asked(group);
  return rewards_.ScoreMedia(asked.prompt_text, asked.prompt_metadata_json, asked.media,
                             {.waits = true});
}

}  // namespace oxbow::rollout
