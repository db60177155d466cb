// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/group_tables.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/replay/table_policy.h"
#include "rpc/convert.h"

namespace oxbow::learner {
namespace {

// In place of a sample's index: a group's own entries have other ids than its members'.
constexpr uint32_t kPromptOfGroup = 0xfffffffeu;
constexpr uint32_t kWholeGroup = 0xffffffffu;

v1::ReplayEntry EntryOf(const PlannedGroup& planned, double mean, const OfferRules& rules,
                        uint32_t part, const char* table) {
  v1::ReplayEntry entry;
  entry.set_entry_id(EntryIdOf(rules, planned.id, part).value);
  entry.set_table(table);
  *entry.mutable_prompt() = planned.prompt;
  entry.set_birth_step(planned.step.value);
  entry.set_raw_reward(mean);
  entry.set_group_id(planned.id.value);
  return entry;
}

// Whether their latents have the same type and shape [C, H, W].
bool SameLatents(const v1::Tensor& a, const v1::Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape_size() != b.shape_size()) return false;
  for (int i = 1; i < a.shape_size(); ++i) {
    if (a.shape(i) != b.shape(i)) return false;
  }
  return a.shape_size() > 1;
}

}  // namespace

std::optional<double> MeanReward(const v1::Group& group) {
  double sum = 0;
  double count = 0;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (trajectory.reward_failed()) continue;
    sum += trajectory.reward();
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

v1::ReplayEntry HardPromptEntry(const PlannedGroup& planned, double mean, const OfferRules& rules) {
  return EntryOf(planned, mean, rules, kPromptOfGroup, replay::kHardPrompts);
}

std::optional<v1::ReplayEntry> GroupEntry(const v1::Group& group, const PlannedGroup& planned,
                                          double mean, const OfferRules& rules) {
  if (group.trajectories_size() == 0) return std::nullopt;
  v1::ReplayEntry entry = EntryOf(planned, mean, rules, kWholeGroup, replay::kRecentGroups);
  *entry.mutable_group() = group;
  v1::Trajectory& kept = *entry.mutable_trajectory();
  std::string latents;
  const v1::Tensor& first = group.trajectories(0).latents();
  int64_t count = 0;
  for (v1::Trajectory& member : *entry.mutable_group()->mutable_trajectories()) {
    if (!SameLatents(first, member.latents())) return std::nullopt;
    latents += member.latents().data();
    count += member.latents().shape(0);
    member.mutable_latents()->clear_data();
    if (!member.picture().empty()) kept.set_picture(std::move(*member.mutable_picture()));
    member.clear_picture();
  }
  v1::Tensor& all = *kept.mutable_latents();
  all = first;
  all.set_shape(0, count);
  all.set_data(std::move(latents));
  kept.set_schedule_id(group.trajectories(0).schedule_id());
  return entry;
}

absl::StatusOr<v1::Group> GroupOfEntry(v1::ReplayEntry entry) {
  v1::Group group = std::move(*entry.mutable_group());
  const std::string& latents = entry.trajectory().latents().data();
  size_t taken = 0;
  for (v1::Trajectory& member : *group.mutable_trajectories()) {
    const auto bytes = rpc::DeclaredBytes(member.latents(), latents.size());
    if (!bytes.ok() || *bytes > latents.size() - taken) {
      return absl::DataLossError(
          absl::StrCat("stored group does not fit its header: ", group.group_id()));
    }
    member.mutable_latents()->set_data(latents.substr(taken, *bytes));
    taken += *bytes;
  }
  if (taken == latents.size() && taken > 0) return group;
  return absl::DataLossError(
      absl::StrCat("stored group does not fit its header: ", group.group_id()));
}

}  // namespace oxbow::learner
