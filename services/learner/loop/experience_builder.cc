// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/experience_builder.h"

#include <ATen/ATen.h>

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rpc/convert_torch.h"

namespace oxbow::learner {
namespace {

// Head and tail both hold x_{i_off}: the worker continued from the same bytes that the buffer sent
// it.
absl::Status JoinLatents(const rl::Trajectory& head, rl::Trajectory& sample) {
  if (!sample.latents.defined()) {
    sample.latents = head.latents;
  } else {
    if (!head.latents.is_meta() && !at::equal(head.latents[-1], sample.latents[0])) {
      return absl::InvalidArgumentError("tail does not start where the stored head ends");
    }
    sample.latents = at::cat({head.latents, sample.latents.slice(0, 1)});
  }
  sample.first_latent = head.first_latent;
  return absl::OkStatus();
}

absl::Status CheckEnd(const rl::Trajectory& head, int kept) {
  if (head.first_latent + head.latents.size(0) != kept + 1) {
    return absl::InvalidArgumentError(absl::StrCat("stored head does not end at x_", kept,
                                                   " but has ", head.latents.size(0),
                                                   " latents from x_", head.first_latent));
  }
  return absl::OkStatus();
}

absl::Status CompleteHead(const ReplayedHead& planned, const rl::Trajectory& head,
                          rl::Trajectory& sample) {
  const int kept = static_cast<int>(planned.kept_steps);
  if (head.log_prob.size() != sample.log_prob.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("stored trajectory has ", head.log_prob.size(), " steps"));
  }
  OXBOW_RETURN_IF_ERROR(CheckEnd(head, kept));
  OXBOW_RETURN_IF_ERROR(JoinLatents(head, sample));
  for (size_t i = 0; i < static_cast<size_t>(kept); ++i) {
    sample.log_prob[i] = head.log_prob[i];
    sample.sde[i] = head.sde[i];
    sample.behaviour_version[i] = head.behaviour_version[i];
  }
  sample.stored_reward = planned.stored_reward;
  return absl::OkStatus();
}

using ReadTrajectory = std::function<absl::StatusOr<rl::Trajectory>(const v1::Trajectory&)>;

// The stored sample as it is becomes the last member of its group.
absl::Status AddWhole(const PlannedGroup& planned, const ReplayedHead& head,
                      const ReadTrajectory& read, rl::Group& group) {
  for (const rl::Trajectory& sample : group.trajectories) {
    if (sample.replayed) return absl::InvalidArgumentError("a whole head was sampled again");
  }
  OXBOW_ASSIGN_OR_RETURN(rl::Trajectory sample, read(head.trajectory));
  OXBOW_RETURN_IF_ERROR(Annotate(CheckEnd(sample, static_cast<int>(head.kept_steps)),
                                 absl::StrCat("group ", planned.id.value)));
  sample.index = static_cast<uint32_t>(group.trajectories.size());
  sample.replayed = true;
  sample.entry_id = head.entry;
  sample.kept_steps = static_cast<int>(head.kept_steps);
  sample.stored_reward = head.stored_reward;
  group.trajectories.push_back(std::move(sample));
  return absl::OkStatus();
}

// Adds the head to every replayed member. `read` makes a sample of the stored trajectory.
absl::Status CompleteHeads(const PlannedGroup& planned, const ReadTrajectory& read,
                           rl::Group& group) {
  if (const ReplayedHead* whole = planned.whole(); whole != nullptr) {
    return AddWhole(planned, *whole, read, group);
  }
  const auto* mixed = planned.As<MixedGroup>();
  for (rl::Trajectory& sample : group.trajectories) {
    if (!sample.replayed) continue;
    if (mixed == nullptr) {
      if (sample.reward_failed) continue;  // Its head was lost, and it trains nothing.
      return absl::InvalidArgumentError("replayed sample without a head");
    }
    OXBOW_ASSIGN_OR_RETURN(const rl::Trajectory head, read(mixed->head.trajectory));
    OXBOW_RETURN_IF_ERROR(Annotate(CompleteHead(mixed->head, head, sample),
                                   absl::StrCat("group ", planned.id.value)));
  }
  return absl::OkStatus();
}

void Describe(const PlannedGroup& planned, rl::Group& group) {
  group.from_data_set = planned.fresh() && planned.As<AgainGroup>() == nullptr;
  if (const auto* added = planned.As<AddedGroup>()) group.success_rate = added->success_rate;
}

}  // namespace

absl::StatusOr<rl::Group> BuildGroup(const v1::Group& received, const PlannedGroup& planned,
                                     const model::Conditioning& conditioning) {
  OXBOW_ASSIGN_OR_RETURN(rl::Group group, rpc::GroupFromProto(received));
  group.conditioning = conditioning;
  Describe(planned, group);
  OXBOW_RETURN_IF_ERROR(CompleteHeads(planned, rpc::TrajectoryFromProto, group));
  return group;
}

absl::StatusOr<rl::Group> BuildOutline(const v1::Group& received, const PlannedGroup& planned) {
  OXBOW_ASSIGN_OR_RETURN(rl::Group group, rpc::GroupOutline(received));
  Describe(planned, group);
  OXBOW_RETURN_IF_ERROR(CompleteHeads(planned, rpc::TrajectoryOutline, group));
  return group;
}

}  // namespace oxbow::learner
