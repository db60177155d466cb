// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/replay_offer.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "core/replay/table_policy.h"
#include "rpc/convert.h"

namespace oxbow::learner {
namespace {

// The mean reward over the scored samples that `takes` names.
template <typename Takes>
std::optional<double> MeanOf(const v1::Group& group, const Takes& takes) {
  double sum = 0;
  double count = 0;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (trajectory.reward_failed() || !takes(trajectory)) continue;
    sum += trajectory.reward();
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

// Whether the best fresh sample of a group says more than luck: a replayed success beside it is no
// evidence for it, and a bar to pass.
bool IsSuccess(const v1::Group& group, double best) {
  const auto differs = [best](const v1::Trajectory& sample) {
    return !sample.reward_failed() && !sample.replayed() && sample.reward() != best;
  };
  return std::any_of(group.trajectories().begin(), group.trajectories().end(), differs) &&
         best > *MeanReward(group);
}

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

flow::LatentSpan HeadSpan(const v1::Trajectory& trajectory, int kept_steps) {
  if (trajectory.latents().shape_size() == 0) return {};
  const int first = static_cast<int>(trajectory.first_latent());
  const int end = first + static_cast<int>(trajectory.latents().shape(0));
  const int steps = trajectory.sde_size();
  std::vector<bool> usable(trajectory.sde().begin(), trajectory.sde().end());
  for (int i = 0; i < steps; ++i) {
    if (i < first || i + 1 >= end || i >= kept_steps) usable[static_cast<size_t>(i)] = false;
  }
  return flow::SpanOf(usable);
}

flow::LatentSpan ImageSpan(const v1::Trajectory& trajectory) {
  if (trajectory.latents().shape_size() == 0) return {};
  const int steps = trajectory.sde_size();
  const int end =
      static_cast<int>(trajectory.first_latent()) + static_cast<int>(trajectory.latents().shape(0));
  return end == steps + 1 ? flow::LatentSpan{.first = steps, .count = 1} : flow::LatentSpan{};
}

EntryId EntryIdOf(const OfferRules& rules, GroupId group, uint32_t sample) {
  const uint64_t id = Mix64(Mix64(Mix64(Mix64(rules.run_seed)) ^ group.value) ^ sample);
  return EntryId(id == 0 ? 1 : id);
}

std::optional<v1::ReplayEntry> MakeOffer(const v1::Group& group, const PlannedGroup& planned,
                                         const OfferRules& rules) {
  const v1::Trajectory* best = rpc::BestFresh(group);
  if (best == nullptr) return std::nullopt;
  if (!IsSuccess(group, best->reward())) return std::nullopt;
  const flow::LatentSpan head = rules.images ? ImageSpan(*best) : HeadSpan(*best, rules.kept_steps);
  if (head.count == 0) return std::nullopt;
  v1::ReplayEntry offer;
  offer.set_entry_id(EntryIdOf(rules, planned.id, best->sample()).value);
  *offer.mutable_prompt() = planned.prompt;
  offer.set_birth_step(planned.step.value);
  offer.set_raw_reward(best->reward());
  offer.set_group_mean(FreshMean(group).value_or(0));
  offer.set_group_id(planned.id.value);
  offer.mutable_sigmas()->Add(rules.sigmas.begin(), rules.sigmas.end());
  v1::Trajectory& kept = *offer.mutable_trajectory();
  kept = *best;
  kept.mutable_latents()->set_shape(0, head.count);
  kept.set_first_latent(static_cast<uint32_t>(head.first));
  const size_t latent =
      best->latents().data().size() / static_cast<size_t>(best->latents().shape(0));
  const auto skipped = static_cast<size_t>(head.first) - best->first_latent();
  kept.mutable_latents()->set_data(
      best->latents().data().substr(skipped * latent, static_cast<size_t>(head.count) * latent));
  return offer;
}

std::optional<double> MeanReward(const v1::Group& group) {
  return MeanOf(group, [](const v1::Trajectory&) { return true; });
}

std::optional<double> FreshMean(const v1::Group& group) {
  return MeanOf(group, [](const v1::Trajectory& sample) { return !sample.replayed(); });
}

std::optional<buffer::Rescored> RegenerationOf(const v1::Group& group) {
  const std::optional<double> reward = MeanOf(group, std::mem_fn(&v1::Trajectory::replayed));
  if (!reward.has_value()) return std::nullopt;
  const std::optional<double> fresh = FreshMean(group);
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (!trajectory.replayed() || trajectory.reward_failed()) continue;
    return buffer::Rescored{.entry = EntryId(trajectory.entry_id()),
                            .reward = reward,
                            .failed = *reward < trajectory.stored_reward() &&
                                      (!fresh.has_value() || *reward <= *fresh)};
  }
  return std::nullopt;
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
  OXBOW_RETURN_IF_ERROR(TakeLatents(entry.trajectory().latents().data(), group));
  return group;
}

absl::Status TakeLatents(const std::string& latents, v1::Group& group) {
  const absl::Status misfit =
      absl::DataLossError(absl::StrCat("stored group does not fit its header: ", group.group_id()));
  size_t taken = 0;
  for (v1::Trajectory& member : *group.mutable_trajectories()) {
    const auto bytes = rpc::DeclaredBytes(member.latents(), latents.size());
    if (!bytes.ok() || *bytes > latents.size() - taken) return misfit;
    member.mutable_latents()->set_data(latents.substr(taken, *bytes));
    taken += *bytes;
  }
  return taken < latents.size() || taken == 0 ? misfit : absl::OkStatus();
}

}  // namespace oxbow::learner
