// SPDX-License-Identifier: Apache-2.0
#include "services/weights/broadcast_receiver.h"

#include <utility>

#include "base/log.h"
#include "services/weights/broadcast_round.h"

namespace oxbow::weights {

BroadcastReceiver::BroadcastReceiver(JoinBroadcastGroup join, uint64_t bytes_max,
                                     FollowMetrics& metrics)
    : join_(std::move(join)), bytes_max_(bytes_max), metrics_(metrics) {
  thread_ = std::thread([this] { Run(); });
}

BroadcastReceiver::~BroadcastReceiver() {
  Stop();
  thread_.join();
}

void BroadcastReceiver::Stop() {
  std::shared_ptr<BroadcastGroup> broadcast_group;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    cancel_joining_ = true;
    broadcast_group = seat_.bytes;
  }
  if (broadcast_group != nullptr) broadcast_group->Abort("the worker leaves");
}

void BroadcastReceiver::Invite(const v1::WatchResponse::Invitation& invitation) {
  absl::MutexLock lock(&mutex_);
  invitation_ = invitation;
  if (joining_) cancel_joining_ = true;
}

std::optional<v1::WatchResponse::Invitation> BroadcastReceiver::NextInvitation() {
  std::shared_ptr<BroadcastGroup> before;
  absl::MutexLock lock(&mutex_);
  const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (invitation_.has_value() && !in_round_);
  };
  mutex_.Await(absl::Condition(&something));
  if (stopping_) return std::nullopt;
  before = std::exchange(seat_, {}).bytes;
  joining_ = true;
  cancel_joining_ = false;
  return std::exchange(invitation_, std::nullopt);
}

void BroadcastReceiver::Run() {
  while (const auto invitation = NextInvitation()) Follow(*invitation);
}

void BroadcastReceiver::Follow(const v1::WatchResponse::Invitation& invitation) {
  BroadcastPlace place{.broadcast_group = invitation.broadcast_group(),
                       .rank = static_cast<int>(invitation.rank()),
                       .size = static_cast<int>(invitation.size()),
                       .device = invitation.device(),
                       .address = invitation.address(),
                       .cancelled = &cancel_joining_};
  absl::StatusOr<std::unique_ptr<BroadcastGroup>> joined =
      absl::InvalidArgumentError("no such place");
  if (place.rank > 0 && place.rank < place.size) joined = join_(place);
  absl::MutexLock lock(&mutex_);
  joining_ = false;
  if (joined.ok()) {
    seat_ = {.broadcast_group = place.broadcast_group, .rounds = 0, .bytes = *std::move(joined)};
    if (stopping_) seat_.bytes->Abort("the worker leaves");
  } else if (!absl::IsCancelled(joined.status())) {
    OXBOW_LOG(Warning) << "not in the broadcast group that broadcasts weights"
                       << Field("broadcast group", place.broadcast_group)
                       << Field("status", joined.status());
  }
}

std::shared_ptr<BroadcastGroup> BroadcastReceiver::BeginRound(
    const v1::WatchResponse::Rounds& rounds) {
  absl::MutexLock lock(&mutex_);
  // The learner is in the broadcast group before it begins a round; a member may need a moment
  // more.
  const auto settled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (!joining_ && !invitation_.has_value());
  };
  mutex_.Await(absl::Condition(&settled));
  const bool mine = seat_.bytes != nullptr && seat_.broadcast_group == rounds.broadcast_group();
  if (stopping_ || !mine || seat_.rounds >= rounds.begun()) return nullptr;
  in_round_ = true;
  ++seat_.rounds;
  return seat_.bytes;
}

void BroadcastReceiver::TakePart(const v1::WatchResponse::Rounds& rounds, Download& download) {
  while (const std::shared_ptr<BroadcastGroup> broadcast_group = BeginRound(rounds)) {
    ReceivedRound received;
    const absl::Status status = ReceiveRound(*broadcast_group, bytes_max_, download, received);
    download.Settle();
    metrics_.Received(received.bytes, Source::kBroadcast);
    for (size_t i = 0; i < received.corrupt; ++i) metrics_.ChunkCorrupt();
    absl::MutexLock lock(&mutex_);
    in_round_ = false;
    if (status.ok()) continue;
    seat_ = {};
    if (stopping_) return;
    OXBOW_LOG(Warning) << "broadcast of weights broke off, asking other workers for the rest"
                       << Field("broadcast group", rounds.broadcast_group())
                       << Field("status", status);
  }
}

}  // namespace oxbow::weights
