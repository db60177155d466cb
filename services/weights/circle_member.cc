#include "services/weights/circle_member.h"

#include <utility>

#include "base/log.h"
#include "services/weights/circle_round.h"

namespace oxbow::weights {

CircleMember::CircleMember(JoinCircle join, uint64_t bytes_max, FollowMetrics& metrics)
    : join_(std::move(join)), bytes_max_(bytes_max), metrics_(metrics) {
  thread_ = std::thread([this] { Run(); });
}

CircleMember::~CircleMember() {
  Stop();
  thread_.join();
}

void CircleMember::Stop() {
  std::shared_ptr<Circle> circle;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    cancel_joining_ = true;
    circle = seat_.bytes;
  }
  if (circle != nullptr) circle->Abort("the worker leaves");
}

void CircleMember::Invite(const v1::WatchResponse::Invitation& invitation) {
  absl::MutexLock lock(&mutex_);
  invitation_ = invitation;
  if (joining_) cancel_joining_ = true;
}

std::optional<v1::WatchResponse::Invitation> CircleMember::NextInvitation() {
  std::shared_ptr<Circle> before;
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

void CircleMember::Run() {
  while (const auto invitation = NextInvitation()) Follow(*invitation);
}

void CircleMember::Follow(const v1::WatchResponse::Invitation& invitation) {
  CirclePlace place{.circle = invitation.circle(),
                    .rank = static_cast<int>(invitation.rank()),
                    .size = static_cast<int>(invitation.size()),
                    .device = invitation.device(),
                    .address = invitation.address(),
                    .cancelled = &cancel_joining_};
  absl::StatusOr<std::unique_ptr<Circle>> joined = absl::InvalidArgumentError("no such place");
  if (place.rank > 0 && place.rank < place.size) joined = join_(place);
  absl::MutexLock lock(&mutex_);
  joining_ = false;
  if (joined.ok()) {
    seat_ = {.circle = place.circle, .rounds = 0, .bytes = *std::move(joined)};
    if (stopping_) seat_.bytes->Abort("the worker leaves");
  } else if (!absl::IsCancelled(joined.status())) {
    OXBOW_LOG(Warning) << "not in the circle that broadcasts weights"
                       << Field("circle", place.circle) << Field("status", joined.status());
  }
}

std::shared_ptr<Circle> CircleMember::BeginRound(const v1::WatchResponse::Rounds& rounds) {
  absl::MutexLock lock(&mutex_);
  // The learner is in the circle before it begins a round; a member may need a moment more.
  const auto settled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (!joining_ && !invitation_.has_value());
  };
  mutex_.Await(absl::Condition(&settled));
  const bool mine = seat_.bytes != nullptr && seat_.circle == rounds.circle();
  if (stopping_ || !mine || seat_.rounds >= rounds.begun()) return nullptr;
  in_round_ = true;
  ++seat_.rounds;
  return seat_.bytes;
}

void CircleMember::TakePart(const v1::WatchResponse::Rounds& rounds, Download& download) {
  while (const std::shared_ptr<Circle> circle = BeginRound(rounds)) {
    ReceivedRound received;
    const absl::Status status = ReceiveRound(*circle, bytes_max_, download, received);
    download.Settle();
    metrics_.Received(received.bytes, Source::kBroadcast);
    for (size_t i = 0; i < received.corrupt; ++i) metrics_.ChunkCorrupt();
    absl::MutexLock lock(&mutex_);
    in_round_ = false;
    if (status.ok()) continue;
    seat_ = {};
    if (stopping_) return;
    OXBOW_LOG(Warning) << "broadcast of weights broke off, asking other workers for the rest"
                       << Field("circle", rounds.circle()) << Field("status", status);
  }
}

}  // namespace oxbow::weights
