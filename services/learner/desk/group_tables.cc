#include "services/learner/desk/group_tables.h"

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

v1::ReplayEntry HeaderOf(const PlannedGroup& planned, double mean, const OfferRules& rules,
                         uint32_t part, const char* table) {
  v1::ReplayEntry header;
  header.set_entry_id(EntryIdOf(rules, planned.id, part).value);
  header.set_table(table);
  *header.mutable_prompt() = planned.prompt;
  header.set_birth_step(planned.step.value);
  header.set_raw_reward(mean);
  header.set_group_id(planned.id.value);
  return header;
}

// [C, H, W] of both.
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

buffer::EntryWithLatents HardPromptEntry(const PlannedGroup& planned, double mean,
                                         const OfferRules& rules) {
  return {.header = HeaderOf(planned, mean, rules, kPromptOfGroup, replay::kHardPrompts),
          .latents = ""};
}

std::optional<buffer::EntryWithLatents> GroupEntry(const v1::Group& group,
                                                   const PlannedGroup& planned, double mean,
                                                   const OfferRules& rules) {
  if (group.trajectories_size() == 0) return std::nullopt;
  buffer::EntryWithLatents entry{
      .header = HeaderOf(planned, mean, rules, kWholeGroup, replay::kRecentGroups), .latents = ""};
  *entry.header.mutable_group() = group;
  const v1::Tensor& first = group.trajectories(0).latents();
  int64_t count = 0;
  for (v1::Trajectory& member : *entry.header.mutable_group()->mutable_trajectories()) {
    if (!SameLatents(first, member.latents())) return std::nullopt;
    entry.latents += member.latents().data();
    count += member.latents().shape(0);
    member.mutable_latents()->clear_data();
  }
  v1::Tensor& all = *entry.header.mutable_trajectory()->mutable_latents();
  all = first;
  all.clear_data();
  all.set_shape(0, count);
  entry.header.mutable_trajectory()->set_schedule_id(group.trajectories(0).schedule_id());
  return entry;
}

absl::StatusOr<v1::Group> GroupOfEntry(buffer::EntryWithLatents entry) {
  v1::Group group = std::move(*entry.header.mutable_group());
  size_t taken = 0;
  for (v1::Trajectory& member : *group.mutable_trajectories()) {
    const auto bytes = rpc::DeclaredBytes(member.latents(), entry.latents.size());
    if (!bytes.ok() || *bytes > entry.latents.size() - taken) {
      return absl::DataLossError(
          absl::StrCat("stored group does not fit its header: ", group.group_id()));
    }
    member.mutable_latents()->set_data(entry.latents.substr(taken, *bytes));
    taken += *bytes;
  }
  if (taken == entry.latents.size() && taken > 0) return group;
  return absl::DataLossError(
      absl::StrCat("stored group does not fit its header: ", group.group_id()));
}

}  // namespace oxbow::learner
