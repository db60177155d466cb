// SPDX-License-Identifier: Apache-2.0
#include "services/learner/ranks/step_manifest.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "core/parallel/share.h"
#include "rpc/channel.h"
#include "rpc/convert.h"

namespace oxbow::learner {

namespace {

v1::StepManifest::Item ItemOf(const v1::Group& received, const PlannedGroup& planned) {
  v1::StepManifest::Item item;
  *item.mutable_group() = WithoutLatents(received);
  if (const auto* added = planned.As<AddedGroup>()) item.set_success_rate(added->success_rate);
  const ReplayedHead* head = planned.head();
  if (head == nullptr) return item;
  item.set_mixed(true);
  *item.mutable_head() = head->trajectory;
  item.mutable_head()->mutable_latents()->clear_data();
  item.mutable_head()->set_entry_id(head->entry.value);
  item.set_kept_steps(head->kept_steps);
  item.set_stored_reward(head->stored_reward);
  item.set_whole(planned.whole() != nullptr);
  return item;
}

// Appends latent bytes that belong to a group, in pieces.
void AppendLatents(uint64_t group_id, std::string_view data,
                   std::vector<v1::RankCommand>& commands) {
  rpc::ForEachChunk(data, rpc::kChunkBytes, [&](uint64_t, std::string_view piece) {
    auto& latents = *commands.emplace_back().mutable_head_latents();
    latents.set_group_id(group_id);
    latents.set_data(std::string(piece));
    return true;
  });
}

}  // namespace

v1::StepManifest MakeManifest(LearnerStep step, const StepGroups& groups, int ranks) {
  const size_t places = groups.received.size();
  OXBOW_CHECK(places == groups.planned.size()) << places << " of " << groups.planned.size();
  v1::StepManifest manifest;
  manifest.set_step(step.value);
  if (!groups.trained.has_value()) {
    for (size_t i = 0; i < places; ++i) {
      *manifest.add_groups() = ItemOf(groups.received[i].group, groups.planned[i]);
    }
    return manifest;
  }
  for (const TrainedGroup& trained : *groups.trained) {
    const size_t i = trained.place;
    v1::StepManifest::Item& item = *manifest.add_groups();
    item = trained.stored.has_value() ? ItemOf(*trained.stored, PlannedGroup())
                                      : ItemOf(groups.received[i].group, groups.planned[i]);
    item.set_stored(trained.stored.has_value());
    item.set_holder(static_cast<uint32_t>(parallel::OwnerOf(i, places, ranks)));
  }
  return manifest;
}

std::vector<v1::RankCommand> InPieces(const v1::StepManifest& manifest, size_t bytes_max) {
  std::vector<v1::RankCommand> pieces(1);
  size_t bytes = 0;
  for (const v1::StepManifest::Item& item : manifest.groups()) {
    const size_t size = item.ByteSizeLong();
    if (bytes > 0 && bytes + size > bytes_max) {
      pieces.back().mutable_step()->set_more(true);
      pieces.emplace_back();
      bytes = 0;
    }
    *pieces.back().mutable_step()->add_groups() = item;
    bytes += size;
  }
  for (v1::RankCommand& piece : pieces) piece.mutable_step()->set_step(manifest.step());
  return pieces;
}

bool AddPiece(v1::StepManifest piece, v1::StepManifest& whole) {
  const bool more = piece.more();
  piece.clear_more();
  whole.MergeFrom(piece);
  return !more;
}

std::vector<v1::RankCommand> HeadsFor(int rank, int ranks, const StepGroups& groups) {
  std::vector<v1::RankCommand> commands;
  const std::vector<PlannedGroup>& planned = groups.planned;
  const parallel::Share share = parallel::ShareOf(planned.size(), rank, ranks);
  for (size_t i = share.begin; i < share.end; ++i) {
    if (planned[i].head() == nullptr) continue;
    AppendLatents(planned[i].id.value, planned[i].head()->trajectory.latents().data(), commands);
  }
  if (!groups.trained.has_value()) return commands;
  for (const TrainedGroup& trained : *groups.trained) {
    if (!trained.stored.has_value() || !share.Has(trained.place)) continue;
    for (const v1::Trajectory& member : trained.stored->trajectories()) {
      AppendLatents(trained.stored->group_id(), member.latents().data(), commands);
    }
  }
  return commands;
}

PlannedGroup PlannedFrom(LearnerStep step, const v1::StepManifest::Item& item) {
  PlannedGroup planned{
      .id = GroupId(item.group().group_id()), .step = step, .prompt = item.group().prompt()};
  std::optional<ReplayedHead> head;
  if (item.mixed()) {
    head = ReplayedHead{.entry = EntryId(item.head().entry_id()),
                        .kept_steps = item.kept_steps(),
                        .stored_reward = item.stored_reward(),
                        .trajectory = item.head()};
  }
  if (item.has_success_rate()) {
    planned.kind = AddedGroup{item.success_rate(), std::move(head)};
  } else if (head.has_value() && item.whole()) {
    planned.kind = WholeGroup{*std::move(head)};
  } else if (head.has_value()) {
    planned.kind = MixedGroup{*std::move(head)};
  }
  return planned;
}

v1::Group WithoutLatents(const v1::Group& group, KeptLatents kept_latents) {
  if (kept_latents == KeptLatents::kAll) return group;
  const v1::Trajectory* offer =
      kept_latents == KeptLatents::kOffer ? rpc::BestFresh(group) : nullptr;
  v1::Group copy;
  copy.set_group_id(group.group_id());
  copy.set_learner_step(group.learner_step());
  copy.set_lease_id(group.lease_id());
  copy.set_epoch(group.epoch());
  *copy.mutable_prompt() = group.prompt();
  copy.set_worker_id(group.worker_id());
  copy.set_sample_seconds(group.sample_seconds());
  copy.set_reward_seconds(group.reward_seconds());
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    v1::Trajectory& kept = *copy.add_trajectories();
    kept = trajectory;
    if (&trajectory == offer) continue;
    kept.clear_picture();
    if (kept.has_latents()) kept.mutable_latents()->clear_data();
  }
  return copy;
}

}  // namespace oxbow::learner
