// SPDX-License-Identifier: Apache-2.0
#include "rpc/convert_torch.h"

#include <ATen/ATen.h>

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "io/tensor_torch.h"
#include "rpc/convert.h"
#include "run/prompt.h"

namespace oxbow::rpc {
namespace {

absl::StatusOr<at::Tensor> RowFromProto(const v1::Tensor& message,
                                        const std::vector<int64_t>& shape) {
  OXBOW_ASSIGN_OR_RETURN(const io::TensorBytes bytes, TensorFromProto(message));
  if (bytes.shape.size() != shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", shape.size(), " dimensions, got ", bytes.shape.size()));
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == model::kPromptLength || shape[i] == bytes.shape[i]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("dimension ", i, " must be ", shape[i], ", got ", bytes.shape[i]));
  }
  OXBOW_ASSIGN_OR_RETURN(at::Tensor tensor, io::ToTorch(bytes));
  if (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16) {
    tensor = tensor.to(at::kFloat);
  }
  return tensor.unsqueeze(0);
}

absl::Status CheckSteps(const v1::Trajectory& trajectory) {
  const int steps = trajectory.log_prob_size();
  if (steps == 0 || trajectory.sde_size() != steps ||
      trajectory.behaviour_version_size() != steps) {
    return absl::InvalidArgumentError(absl::StrCat(
        "per-step lists differ in length: log_prob ", steps, ", sde ", trajectory.sde_size(),
        ", behaviour_version ", trajectory.behaviour_version_size()));
  }
  if (trajectory.kept_steps() > static_cast<uint32_t>(steps) ||
      trajectory.first_latent() > static_cast<uint32_t>(steps)) {
    return absl::InvalidArgumentError(absl::StrCat("kept_steps ", trajectory.kept_steps(),
                                                   " or first_latent ", trajectory.first_latent(),
                                                   " is beyond the steps: ", steps));
  }
  for (int i = 0; i < steps; ++i) {
    if (!std::isfinite(trajectory.log_prob(i))) {
      return absl::InvalidArgumentError(absl::StrCat("log_prob is not finite at step ", i));
    }
  }
  if (!std::isfinite(trajectory.reward()) || !std::isfinite(trajectory.stored_reward())) {
    return absl::InvalidArgumentError("reward is not finite");
  }
  if (!(trajectory.duplicate_share() >= 0 && trajectory.duplicate_share() <= 1) ||
      !(trajectory.group_distance() >= 0 && trajectory.group_distance() <= 1)) {
    return absl::InvalidArgumentError("likeness to the group is outside [0, 1]");
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> LatentsFromProto(const v1::Trajectory& trajectory) {
  OXBOW_ASSIGN_OR_RETURN(const io::TensorBytes bytes, TensorFromProto(trajectory.latents()));
  if (bytes.shape.size() != 4 && bytes.shape.size() != 5) {
    return absl::InvalidArgumentError(absl::StrCat(
        "latents are not [n, C, H, W] or [n, C, F, H, W]: ", bytes.shape.size(), " dimensions"));
  }
  const int64_t end = bytes.shape[0] + static_cast<int64_t>(trajectory.first_latent());
  if (end > trajectory.log_prob_size() + 1) {
    return absl::InvalidArgumentError(absl::StrCat("latents go beyond the last step: ", end, " of ",
                                                   trajectory.log_prob_size() + 1));
  }
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor stored, io::ToTorch(bytes));
  at::Tensor latents = stored.to(at::kFloat);
  if (!at::isfinite(latents).all().item<bool>()) {
    return absl::InvalidArgumentError("latents are not finite");
  }
  return latents;
}

// Where a message has no bytes it says the shape that they have elsewhere.
absl::StatusOr<at::Tensor> LatentShapeOf(const v1::Trajectory& trajectory) {
  const v1::Tensor& latents = trajectory.latents();
  if (latents.shape_size() == 0) return at::Tensor();
  return at::empty(std::vector<int64_t>(latents.shape().begin(), latents.shape().end()),
                   at::TensorOptions(at::kFloat).device(at::kMeta));
}

absl::StatusOr<std::map<std::string, double>> RewardsFromProto(const v1::Trajectory& trajectory) {
  std::map<std::string, double> rewards;
  for (const v1::NamedValue& reward : trajectory.rewards()) {
    if (!std::isfinite(reward.value())) {
      return absl::InvalidArgumentError(absl::StrCat("reward is not finite: ", reward.name()));
    }
    if (!rewards.emplace(reward.name(), reward.value()).second) {
      return absl::InvalidArgumentError(absl::StrCat("reward is named twice: ", reward.name()));
    }
  }
  return rewards;
}

}  // namespace

v1::Conditioning ToProto(const model::Conditioning& conditioning) {
  v1::Conditioning message;
  for (const auto& [name, tensor] : conditioning) {
    OXBOW_CHECK(tensor.dim() >= 1 && tensor.size(0) == 1)
        << "conditioning of one prompt has one row: " << name;
    SetPart(message, name, ToProto(io::FromTorch(io::NarrowedExactly(tensor.squeeze(0)))));
  }
  return message;
}

absl::StatusOr<model::Conditioning> ConditioningFromProto(
    const v1::Conditioning& conditioning, const std::vector<model::ConditioningPart>& parts) {
  std::map<std::string, const v1::Tensor*> sent;
  for (const PartHeld& part : PartsOf(conditioning)) sent[part.name] = part.tensor;
  model::Conditioning result;
  for (const model::ConditioningPart& part : parts) {
    const auto found = sent.find(part.name);
    absl::StatusOr<at::Tensor> row =
        RowFromProto(found == sent.end() ? v1::Tensor() : *found->second, part.shape);
    if (!row.ok()) return Annotate(row.status(), "conditioning." + part.name);
    result.emplace(part.name, *std::move(row));
    if (found != sent.end()) sent.erase(found);
  }
  if (sent.empty()) return result;
  return absl::InvalidArgumentError(
      absl::StrCat("conditioning has a part that the model does not take: ", sent.begin()->first));
}

v1::Trajectory ToProto(const rl::Trajectory& sample, uint64_t schedule_id, at::ScalarType storage) {
  v1::Trajectory message;
  message.set_sample(sample.index);
  if (sample.latents.defined()) {
    *message.mutable_latents() = ToProto(io::FromTorch(sample.latents.to(storage)));
  }
  message.set_first_latent(static_cast<uint32_t>(sample.first_latent));
  message.mutable_log_prob()->Add(sample.log_prob.begin(), sample.log_prob.end());
  for (const bool sde : sample.sde) message.add_sde(sde);
  message.mutable_behaviour_version()->Add(sample.behaviour_version.begin(),
                                           sample.behaviour_version.end());
  message.set_schedule_id(schedule_id);
  for (const auto& [name, value] : sample.rewards) {
    v1::NamedValue& reward = *message.add_rewards();
    reward.set_name(name);
    reward.set_value(value);
  }
  message.set_reward(sample.reward);
  message.set_reward_failed(sample.reward_failed);
  message.set_replayed(sample.replayed);
  message.set_entry_id(sample.entry_id.value);
  message.set_kept_steps(static_cast<uint32_t>(sample.kept_steps));
  message.set_stored_reward(sample.stored_reward);
  message.set_group_distance(sample.group_distance);
  message.set_duplicate_share(sample.duplicate_share);
  return message;
}

namespace {

using ReadLatents = absl::StatusOr<at::Tensor> (*)(const v1::Trajectory&);

absl::StatusOr<rl::Trajectory> SampleOf(const v1::Trajectory& trajectory, ReadLatents latents) {
  OXBOW_RETURN_IF_ERROR(CheckSteps(trajectory));
  rl::Trajectory sample;
  sample.index = trajectory.sample();
  // The code that put the bytes back may have touched the message: never set means no
  // dtype and no shape.
  if (trajectory.latents().dtype() != v1::DTYPE_UNSPECIFIED ||
      trajectory.latents().shape_size() > 0) {
    OXBOW_ASSIGN_OR_RETURN(sample.latents, latents(trajectory));
  }
  sample.first_latent = static_cast<int>(trajectory.first_latent());
  sample.log_prob.assign(trajectory.log_prob().begin(), trajectory.log_prob().end());
  sample.sde.assign(trajectory.sde().begin(), trajectory.sde().end());
  sample.behaviour_version.assign(trajectory.behaviour_version().begin(),
                                  trajectory.behaviour_version().end());
  OXBOW_ASSIGN_OR_RETURN(sample.rewards, RewardsFromProto(trajectory));
  sample.reward = trajectory.reward();
  sample.reward_failed = trajectory.reward_failed();
  sample.replayed = trajectory.replayed();
  sample.entry_id = EntryId(trajectory.entry_id());
  sample.kept_steps = static_cast<int>(trajectory.kept_steps());
  sample.stored_reward = trajectory.stored_reward();
  sample.group_distance = trajectory.group_distance();
  sample.duplicate_share = trajectory.duplicate_share();
  return sample;
}

}  // namespace

absl::StatusOr<rl::Trajectory> TrajectoryFromProto(const v1::Trajectory& trajectory) {
  return SampleOf(trajectory, LatentsFromProto);
}

absl::StatusOr<rl::Trajectory> TrajectoryOutline(const v1::Trajectory& trajectory) {
  return SampleOf(trajectory, LatentShapeOf);
}

v1::Group ToProto(const rl::Group& group, uint64_t schedule_id, at::ScalarType storage) {
  v1::Group message;
  message.set_group_id(group.id.value);
  *message.mutable_prompt() = run::MakePrompt(group.prompt_text, group.prompt_metadata_json);
  for (const rl::Trajectory& sample : group.trajectories) {
    *message.add_trajectories() = ToProto(sample, schedule_id, storage);
  }
  return message;
}

namespace {

absl::StatusOr<rl::Group> GroupOf(const v1::Group& group, ReadLatents latents) {
  rl::Group result;
  result.id = GroupId(group.group_id());
  result.prompt_id = PromptId(group.prompt().id());
  result.prompt_text = group.prompt().text();
  result.prompt_metadata_json = group.prompt().metadata_json();
  if (result.prompt_id.value != run::PromptIdOf(result.prompt_text, result.prompt_metadata_json)) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt id does not belong to the prompt: ", result.prompt_id.value));
  }
  std::set<uint32_t> seen;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    absl::StatusOr<rl::Trajectory> sample = SampleOf(trajectory, latents);
    if (!sample.ok()) {
      return Annotate(sample.status(),
                      absl::StrCat("group ", group.group_id(), " sample ", trajectory.sample()));
    }
    if (!seen.insert(sample->index).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("sample index repeats in a group: ", sample->index));
    }
    result.trajectories.push_back(*std::move(sample));
  }
  return result;
}

}  // namespace

absl::StatusOr<rl::Group> GroupFromProto(const v1::Group& group) {
  return GroupOf(group, LatentsFromProto);
}

absl::StatusOr<rl::Group> GroupOutline(const v1::Group& group) {
  return GroupOf(group, LatentShapeOf);
}

}  // namespace oxbow::rpc
