#include "services/weights/circle_host.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "core/parallel/c10d_ranks.h"
#include "services/weights/circle_round.h"

namespace oxbow::weights {
namespace {

bool IsGpu(const std::string& device) { return absl::StartsWith(device, "cuda"); }

}  // namespace

CircleHost::CircleHost(Options options, PublishMetrics& metrics, const Clock& clock,
                       std::function<void()> on_change)
    : options_(std::move(options)),
      metrics_(metrics),
      clock_(clock),
      on_change_(std::move(on_change)),
      roster_(options_.members_max) {
  thread_ = std::thread([this] { Run(); });
}

CircleHost::~CircleHost() {
  Stop();
  thread_.join();
}

void CircleHost::Stop() {
  std::shared_ptr<Circle> circle;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    cancel_forming_ = true;
    circle = circle_;
  }
  if (circle != nullptr) circle->Abort("the learner stops to publish");
}

void CircleHost::Join(Ticket ticket, const v1::WatchRequest& request, const std::string& host) {
  if (request.circle_device().empty() || request.worker_id().empty() || host.empty()) return;
  absl::MutexLock lock(&mutex_);
  roster_.Join(ticket, request.worker_id(), host,
               request.have_any() ? std::optional(request.have_version()) : std::nullopt,
               IsGpu(request.circle_device()));
}

void CircleHost::Leave(Ticket ticket) {
  absl::MutexLock lock(&mutex_);
  roster_.Leave(ticket);
  // The learner need not wait for a member that will not come.
  if (forming_ && roster_.RankOf(ticket) > 0) cancel_forming_ = true;
}

void CircleHost::HeardOf(const std::string& worker, uint64_t version) {
  absl::MutexLock lock(&mutex_);
  roster_.HeardOf(worker, version);
}

CircleHost::SharedManifest CircleHost::OldestOfMembers() const {
  const std::optional<uint64_t> oldest = roster_.OldestVersion();
  if (!oldest.has_value()) return nullptr;
  for (const SharedManifest& manifest : versions_) {
    // A member that is further behind gets the rest by the relay.
    if (manifest->policy_version() >= *oldest) return manifest;
  }
  return nullptr;
}

void CircleHost::Published(SharedManifest manifest, std::shared_ptr<const ChunksByHash> chunks) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  roster_.Published();
  // No round in a circle that is about to be given up for another.
  if (circle_ != nullptr && !busy_ && !round_.has_value() && !roster_.ShouldForm()) {
    round_ = Round{manifest, OldestOfMembers(), std::move(chunks)};
    ++begun_;
  } else if (roster_.watchers() > 0) {
    metrics_.BroadcastRound("skipped");
  }
  versions_.push_back(std::move(manifest));
  if (versions_.size() > options_.versions_kept) versions_.pop_front();
}

void CircleHost::Describe(Ticket ticket, uint64_t& invited, v1::WatchResponse& response) const {
  absl::MutexLock lock(&mutex_);
  const int rank = roster_.RankOf(ticket);
  if (rank == 0) return;
  if (!address_.empty() && invited != roster_.circle()) {
    invited = roster_.circle();
    v1::WatchResponse::Invitation& invitation = *response.mutable_invitation();
    invitation.set_circle(roster_.circle());
    invitation.set_address(address_);
    invitation.set_rank(static_cast<uint32_t>(rank));
    invitation.set_size(static_cast<uint32_t>(roster_.members().size()) + 1);
    invitation.set_device(device_);
  }
  if (circle_ == nullptr || begun_ == 0) return;
  response.mutable_rounds()->set_circle(roster_.circle());
  response.mutable_rounds()->set_begun(begun_);
}

void CircleHost::Run() {
  while (true) {
    switch (NextErrand()) {
      case Errand::kStop:
        return;
      case Errand::kForm:
        Form();
        break;
      case Errand::kRound:
        SendNext();
        break;
    }
  }
}

CircleHost::Errand CircleHost::NextErrand() {
  absl::MutexLock lock(&mutex_);
  const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || round_.has_value() || roster_.ShouldForm();
  };
  mutex_.Await(absl::Condition(&something));
  if (stopping_) return Errand::kStop;
  return round_.has_value() ? Errand::kRound : Errand::kForm;
}

void CircleHost::Form() {
  CirclePlace place;
  std::shared_ptr<Circle> before;  // Its destructor may take a moment.
  {
    absl::MutexLock lock(&mutex_);
    if (round_.has_value() || stopping_) return;
    before = std::exchange(circle_, nullptr);
    begun_ = 0;
    address_.clear();
    cancel_forming_ = false;
    place.circle = roster_.Form();
    place.size = static_cast<int>(roster_.members().size()) + 1;
    metrics_.CircleMembersAre(0);
    if (roster_.members().empty()) return;
    place.address = roster_.HostOf(roster_.members().front());
    place.device = device_ = IsGpu(options_.device) && roster_.AllOnGpus() ? "cuda" : "cpu";
    forming_ = true;
  }
  before.reset();
  place.cancelled = &cancel_forming_;
  place.on_listening = [this, circle = place.circle](const std::string& address) {
    Invite(circle, address);
  };
  absl::StatusOr<std::unique_ptr<Circle>> joined = options_.join(place);
  absl::MutexLock lock(&mutex_);
  forming_ = false;
  if (joined.ok()) {
    circle_ = *std::move(joined);
    if (stopping_) circle_->Abort("the learner stops to publish");
    metrics_.CircleMembersAre(roster_.members().size());
    OXBOW_LOG(Info) << "weights are broadcast" << Field("circle", place.circle)
                    << Field("workers", roster_.members().size());
    return;
  }
  if (absl::IsCancelled(joined.status())) return;  // A member left: the next circle.
  roster_.Failed(parallel::BehindRanks(joined.status()));
  metrics_.CircleFailed();
  OXBOW_LOG(Warning) << "no circle to broadcast weights in, workers relay them"
                     << Field("circle", place.circle) << Field("status", joined.status());
}

void CircleHost::Invite(uint64_t circle, const std::string& address) {
  {
    absl::MutexLock lock(&mutex_);
    if (roster_.circle() != circle) return;
    address_ = address;
  }
  on_change_();
}

void CircleHost::SendNext() {
  std::shared_ptr<Circle> circle;
  Round round;
  {
    absl::MutexLock lock(&mutex_);
    round = *std::exchange(round_, std::nullopt);
    busy_ = true;
    circle = circle_;
  }
  const absl::Duration start = clock_.Now();
  const absl::Status sent = Send(*circle, round);
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
  metrics_.CircleMembersAre(0);
  circle_.reset();
}

absl::Status CircleHost::Send(Circle& circle, const Round& round) {
  const std::vector<ChunkSize> order = round.before == nullptr
                                           ? ChunksOf(*round.manifest)
                                           : NewChunks(*round.manifest, *round.before);
  double total = 0;
  for (const ChunkSize& chunk : order) total += static_cast<double>(chunk.bytes);
  const absl::Duration limit = options_.round_grace + absl::Seconds(total / options_.rate_min);
  const absl::Duration until = clock_.Now() + limit;
  return SendRound(circle, PolicyVersion(round.manifest->policy_version()), order, *round.chunks,
                   [&](uint64_t bytes) -> absl::Status {
                     metrics_.Broadcast(bytes);
                     if (clock_.Now() <= until) return absl::OkStatus();
                     return absl::DeadlineExceededError(
                         absl::StrCat("round takes longer than ", absl::FormatDuration(limit)));
                   });
}

}  // namespace oxbow::weights
