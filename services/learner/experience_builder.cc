#include "services/learner/experience_builder.h"

#include <ATen/ATen.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rpc/convert_torch.h"

namespace oxbow::learner {
namespace {

// Both hold x_{i_off}: the worker sampled on from the very bytes the buffer sent it.
absl::Status JoinLatents(const at::Tensor& head, int kept_steps, rl::Sample& sample) {
  if (!sample.latents.defined()) {
    sample.latents = head;
  } else {
    if (!at::equal(head[kept_steps], sample.latents[0])) {
      return absl::InvalidArgumentError("tail does not start where the stored head ends");
    }
    sample.latents = at::cat({head, sample.latents.slice(0, 1)});
  }
  sample.first_latent = 0;
  return absl::OkStatus();
}

absl::Status CompleteHead(const ReplayHead& planned, rl::Sample& sample) {
  OXBOW_ASSIGN_OR_RETURN(const rl::Sample head, rpc::SampleFromProto(planned.trajectory));
  const int kept = static_cast<int>(planned.kept_steps);
  if (head.log_prob.size() != sample.log_prob.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("stored trajectory has ", head.log_prob.size(), " steps"));
  }
  OXBOW_RETURN_IF_ERROR(JoinLatents(head.latents, kept, sample));
  for (size_t i = 0; i < static_cast<size_t>(kept); ++i) {
    sample.log_prob[i] = head.log_prob[i];
    sample.sde[i] = head.sde[i];
    sample.behaviour_version[i] = head.behaviour_version[i];
  }
  sample.stored_reward = planned.stored_reward;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<rl::Group> BuildGroup(const v1::Group& received, const PlannedGroup& planned,
                                     const model::Conditioning& conditioning) {
  OXBOW_ASSIGN_OR_RETURN(rl::Group group, rpc::GroupFromProto(received));
  group.conditioning = conditioning;
  for (rl::Sample& sample : group.samples) {
    if (!sample.replayed) continue;
    if (!planned.head.has_value())
      return absl::InvalidArgumentError("replayed sample without a head");
    OXBOW_RETURN_IF_ERROR(
        Annotate(CompleteHead(*planned.head, sample), absl::StrCat("group ", planned.id.value)));
  }
  return group;
}

}  // namespace oxbow::learner
