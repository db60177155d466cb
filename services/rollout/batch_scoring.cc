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

void BatchScoring::AskTogether() {
  absl::call_once(asked_, [this] {
    std::vector<reward::RewardClient::Group> asked;
    for (size_t i = 0; i < groups_.size(); ++i) {
      asked.push_back({.prompt_text = leases_[i].prompt().text(),
                       .prompt_metadata_json = leases_[i].prompt().metadata_json(),
                       .media = MediaOf(groups_[i]),
                       .trace = TraceOfGroup(run_id_, GroupId(leases_[i].group_id()),
                                             LeaseId(leases_[i].lease_id()))});
    }
    together_ = rewards_.ScoreTogether(asked);
  });
}

std::vector<absl::StatusOr<reward::Scores>> BatchScoring::Score(size_t group) {
  if (const auto& scores = together_[group]; scores.has_value()) {
    return {scores->begin(), scores->end()};
  }
  const v1::Prompt& prompt = leases_[group].prompt();
  return rewards_.ScoreMedia(prompt.text(), prompt.metadata_json(), MediaOf(groups_[group]),
                             {.waits = true});
}

}  // namespace oxbow::rollout
