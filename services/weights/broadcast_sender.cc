// SPDX-License-Identifier: Apache-2.0
#include "services/weights/broadcast_sender.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "core/parallel/c10d_ranks.h"
#include "services/weights/broadcast_round.h"

namespace oxbow::weights {
namespace {

bool IsGpu(const std::string& device) { return absl::StartsWith(device, "cuda"); }

}  // namespace

BroadcastSender::BroadcastSender(Options options, PublishMetrics& metrics, const Clock& clock,
                                 std::function<void()> on_change)
    : options_(std::move(options)),
      metrics_(metrics),
      clock_(clock),
      on_change_(std::move(on_change)),
      roster_(options_.members_max) {
  thread_ = std::thread([this] { Run(); });
}

BroadcastSender::~BroadcastSender() {
  Stop();
  thread_.join();
}

void BroadcastSender::Stop() {
  std::shared_ptr<BroadcastGroup> broadcast_group;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    cancel_forming_ = true;
    broadcast_group = group_;
  }
  if (broadcast_group != nullptr) broadcast_group->Abort("the learner stops to publish");
}

void BroadcastSender::Join(Ticket ticket, const v1::WatchRequest& request,
                           const std::string& host) {
  if (request.broadcast_device().empty() || request.worker_id().empty() || host.empty()) return;
  absl::MutexLock lock(&mutex_);
  roster_.Join(ticket, request.worker_id(), host,
               request.have_any() ? std::optional(request.have_version()) : std::nullopt,
               IsGpu(request.broadcast_device()));
}

void BroadcastSender::Leave(Ticket ticket) {
  absl::MutexLock lock(&mutex_);
  roster_.Leave(ticket);
  // The learner need not wait for a member that will not come.
  if (forming_ && roster_.RankOf(ticket) > 0) cancel_forming_ = true;
}

void BroadcastSender::HeardOf(const std::string& worker, uint64_t version) {
  absl::MutexLock lock(&mutex_);
  roster_.HeardOf(worker, version);
}

BroadcastSender::SharedManifest BroadcastSender::OldestOfMembers() const {
  const std::optional<uint64_t> oldest = roster_.OldestVersion();
  if (!oldest.has_value()) return nullptr;
  for (const SharedManifest& manifest : versions_) {
    // A member that is further behind gets the rest by the relay.
    if (manifest->policy_version() >= *oldest) return manifest;
  }
  return nullptr;
}

void BroadcastSender::Published(SharedManifest manifest,
                                std::shared_ptr<const ChunksByHash> chunks) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  roster_.Published();
  // No round in a broadcast group that is about to be given up for another.
  if (group_ != nullptr && !busy_ && !round_.has_value() && !roster_.ShouldForm()) {
    round_ = Round{manifest, OldestOfMembers(), std::move(chunks)};
    ++begun_;
  } else if (roster_.watchers() > 0) {
    metrics_.BroadcastRound("skipped");
  }
  versions_.push_back(std::move(manifest));
  if (versions_.size() > options_.versions_kept) versions_.pop_front();
}

void BroadcastSender::Describe(Ticket ticket, uint64_t& invited,
                               v1::WatchResponse& response) const {
  absl::MutexLock lock(&mutex_);
  const int rank = roster_.RankOf(ticket);
  if (rank == 0) return;
  if (!address_.empty() && invited != roster_.broadcast_group()) {
    invited = roster_.broadcast_group();
    v1::WatchResponse::Invitation& invitation = *response.mutable_invitation();
    invitation.set_broadcast_group(roster_.broadcast_group());
    invitation.set_address(address_);
    invitation.set_rank(static_cast<uint32_t>(rank));
    invitation.set_size(static_cast<uint32_t>(roster_.members().size()) + 1);
    invitation.set_device(device_);
  }
  if (group_ == nullptr || begun_ == 0) return;
  response.mutable_rounds()->set_broadcast_group(roster_.broadcast_group());
  response.mutable_rounds()->set_begun(begun_);
}

void BroadcastSender::Run() {
  while (true) {
    switch (NextTask()) {
      case Task::kStop:
        return;
      case Task::kForm:
        Form();
        break;
      case Task::kRound:
        SendNext();
        break;
    }
  }
}

BroadcastSender::Task BroadcastSender::NextTask() {
  absl::MutexLock lock(&mutex_);
  const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || round_.has_value() || roster_.ShouldForm();
  };
  mutex_.Await(absl::Condition(&something));
  if (stopping_) return Task::kStop;
  return round_.has_value() ? Task::kRound : Task::kForm;
}

void BroadcastSender::Form() {
  BroadcastPlace place;
  std::shared_ptr<BroadcastGroup> before;  // Its destructor may take a moment.
  {
    absl::MutexLock lock(&mutex_);
    if (round_.has_value() || stopping_) return;
    before = std::exchange(group_, nullptr);
    begun_ = 0;
    address_.clear();
    cancel_forming_ = false;
    place.broadcast_group = roster_.Form();
    place.size = static_cast<int>(roster_.members().size()) + 1;
    metrics_.BroadcastMembersAre(0);
    if (roster_.members().empty()) return;
    place.address = roster_.HostOf(roster_.members().front());
    place.device = device_ = IsGpu(options_.device) && roster_.AllOnGpus() ? "cuda" : "cpu";
    forming_ = true;
  }
  before.reset();
  place.cancelled = &cancel_forming_;
  place.on_listening = [this, broadcast_group = place.broadcast_group](const std::string& address) {
    Invite(broadcast_group, address);
  };
  absl::StatusOr<std::unique_ptr<BroadcastGroup>> joined = options_.join(place);
  absl::MutexLock lock(&mutex_);
  forming_ = false;
  if (joined.ok()) {
    group_ = *std::move(joined);
    if (stopping_) group_->Abort("the learner stops to publish");
    metrics_.BroadcastMembersAre(roster_.members().size());
    OXBOW_LOG(Info) << "weights are broadcast" << Field("broadcast group", place.broadcast_group)
                    << Field("workers", roster_.members().size());
    return;
  }
  if (absl::IsCancelled(joined.status())) return;  // A member left: the next broadcast_group.
  roster_.Failed(parallel::BehindRanks(joined.status()));
  metrics_.BroadcastGroupFailed();
  OXBOW_LOG(Warning) << "no broadcast group to broadcast weights in, workers relay them"
                     << Field("broadcast group", place.broadcast_group)
                     << Field("status", joined.status());
}

void BroadcastSender::Invite(uint64_t broadcast_group, const std::string& address) {
  {
    absl::MutexLock lock(&mutex_);
    if (roster_.broadcast_group() != broadcast_group) return;
    address_ = address;
  }
  on_change_();
}

void BroadcastSender::SendNext() {
  std::shared_ptr<BroadcastGroup> broadcast_group;
  Round round;
  {
    absl::MutexLock lock(&mutex_);
    round = *std::exchange(round_, std::nullopt);
    busy_ = true;
    broadcast_group = group_;
  }
  const absl::Duration start = clock_.Now();
  const absl::Status sent = Send(*broadcast_group, round);
  if (sent.ok()) {
    metrics_.BroadcastRound("whole");
    metrics_.BroadcastTook(clock_.Now() - start);
  } else {
    metrics_.BroadcastRound("failed");
    OXBOW_LOG(Warning) << "weights not broadcast to all, workers relay them"
                       << Field("policy_version", round.manifest->policy_version())
                       << Field("status", sent);
  }
  absl::MutexLock lock(&mutex_);
  busy_ = false;
  if (sent.ok()) return roster_.Succeeded();
  roster_.Failed(parallel::BehindRanks(sent), round.manifest->policy_version());
  metrics_.BroadcastMembersAre(0);
  group_.reset();
}

absl::Status BroadcastSender::Send(BroadcastGroup& broadcast_group, const Round& round) {
  std::vector<ChunkSize> order = round.before == nullptr
                                     ? ChunksOf(*round.manifest)
                                     : NewChunks(*round.manifest, *round.before);
  // Chunks that stay at their place are frozen. Every member has them: it has applied a version of
  // this epoch, for which it fetched them by the relay.
  std::erase_if(order,
                [&](const ChunkSize& chunk) { return !round.chunks->contains(chunk.sha256); });
  double total = 0;
  for (const ChunkSize& chunk : order) total += static_cast<double>(chunk.bytes);
  const absl::Duration limit = options_.round_grace + absl::Seconds(total / options_.rate_min);
  const absl::Duration until = clock_.Now() + limit;
  return SendRound(broadcast_group, PolicyVersion(round.manifest->policy_version()), order,
                   *round.chunks, [&](uint64_t bytes) -> absl::Status {
                     metrics_.Broadcast(bytes);
                     if (clock_.Now() <= until) return absl::OkStatus();
                     return absl::DeadlineExceededError(
                         absl::StrCat("round takes longer than ", absl::FormatDuration(limit)));
                   });
}

}  // namespace oxbow::weights
