// SPDX-License-Identifier: Apache-2.0
#include "services/weights/broadcast_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "core/parallel/c10d_ranks.h"
#include "services/weights/broadcast_round.h"

namespace oxbow::weights {
namespace {

constexpr uint32_t kDoublingsMax = 6;
constexpr size_t kStrikesKept = 1024;  // Workers, whether they come back or not.

bool IsGpu(const std::string& device) { return absl::StartsWith(device, "cuda"); }

}  // namespace

void BroadcastMembership::Join(Ticket ticket, const std::string& worker, const std::string& host,
                               std::optional<uint64_t> version, bool on_gpu) {
  std::erase_if(watchers_, [&](const auto& entry) { return entry.second.worker == worker; });
  watchers_[ticket] = {worker, host, version, on_gpu, version.has_value()};
}

void BroadcastMembership::Leave(Ticket ticket) { watchers_.erase(ticket); }

void BroadcastMembership::HeardOf(const std::string& worker, uint64_t version) {
  for (auto& [ticket, watcher] : watchers_) {
    if (watcher.worker != worker) continue;
    watcher.version = version;
    watcher.heard = true;
  }
}

std::vector<BroadcastMembership::Ticket> BroadcastMembership::Eligible() const {
  std::vector<Ticket> eligible;
  for (const auto& [ticket, watcher] : watchers_) {
    if (eligible.size() == members_max_) break;
    const auto strikes = strikes_.find(watcher.worker);
    const bool sits_out = strikes != strikes_.end() && strikes->second.out_until > publications_;
    if (watcher.heard && !sits_out) eligible.push_back(ticket);
  }
  return eligible;
}

uint64_t BroadcastMembership::Form() {
  members_ = Eligible();
  return ++group_;
}

void BroadcastMembership::Failed(const std::vector<int>& behind, std::optional<uint64_t> version) {
  const std::vector<Ticket> members = std::exchange(members_, {});
  for (size_t i = 0; i < members.size(); ++i) {
    const auto found = watchers_.find(members[i]);
    if (found == watchers_.end()) continue;
    Watcher& watcher = found->second;
    const int rank = static_cast<int>(i) + 1;
    const bool blamed = behind.empty() || std::count(behind.begin(), behind.end(), rank) > 0;
    // A worker that has the weights of the failed round is alive, however it got them.
    const bool lives = version.has_value() ? watcher.version >= version : !blamed;
    watcher.heard = watcher.heard && lives;
    if (blamed) Strike(watcher.worker);
  }
}

void BroadcastMembership::Strike(const std::string& worker) {
  if (strikes_.size() >= kStrikesKept) strikes_.erase(strikes_.begin());
  Strikes& strikes = strikes_[worker];
  strikes.out_until = publications_ + (uint64_t{1} << std::min(strikes.count, kDoublingsMax));
  ++strikes.count;
}

void BroadcastMembership::Succeeded() {
  for (const Ticket member : members_) {
    const auto watcher = watchers_.find(member);
    if (watcher != watchers_.end()) strikes_.erase(watcher->second.worker);
  }
}

int BroadcastMembership::RankOf(Ticket ticket) const {
  const auto found = std::find(members_.begin(), members_.end(), ticket);
  return found == members_.end() ? 0 : static_cast<int>(found - members_.begin()) + 1;
}

std::string BroadcastMembership::HostOf(Ticket ticket) const {
  const auto watcher = watchers_.find(ticket);
  return watcher == watchers_.end() ? "" : watcher->second.host;
}

bool BroadcastMembership::AllOnGpus() const {
  return std::all_of(members_.begin(), members_.end(), [this](Ticket member) {
    const auto watcher = watchers_.find(member);
    return watcher != watchers_.end() && watcher->second.on_gpu;
  });
}

std::optional<uint64_t> BroadcastMembership::OldestVersion() const {
  std::optional<uint64_t> oldest;
  for (const Ticket member : members_) {
    const auto watcher = watchers_.find(member);
    if (watcher == watchers_.end() || !watcher->second.version.has_value()) continue;
    oldest = std::min(oldest.value_or(*watcher->second.version), *watcher->second.version);
  }
  return oldest;
}

BroadcastSender::BroadcastSender(Options options, BroadcastMetrics& metrics, const Clock& clock,
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
    broadcast_group = standing_.bytes;
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
  if (standing_.bytes != nullptr && !busy_ && !round_.has_value() && !roster_.ShouldForm()) {
    round_ = Round{manifest, OldestOfMembers(), std::move(chunks)};
    ++standing_.begun;
  } else if (roster_.watchers() > 0) {
    metrics_.Round("skipped");
  }
  versions_.push_back(std::move(manifest));
  if (versions_.size() > options_.versions_kept) versions_.pop_front();
}

void BroadcastSender::Describe(Ticket ticket, uint64_t& invited,
                               v1::WatchResponse& response) const {
  absl::MutexLock lock(&mutex_);
  const int rank = roster_.RankOf(ticket);
  if (rank == 0) return;
  if (!standing_.address.empty() && invited != roster_.broadcast_group()) {
    invited = roster_.broadcast_group();
    v1::WatchResponse::Invitation& invitation = *response.mutable_invitation();
    invitation.set_broadcast_group(roster_.broadcast_group());
    invitation.set_address(standing_.address);
    invitation.set_rank(static_cast<uint32_t>(rank));
    invitation.set_size(static_cast<uint32_t>(roster_.members().size()) + 1);
    invitation.set_device(standing_.device);
  }
  if (standing_.bytes == nullptr || standing_.begun == 0) return;
  response.mutable_rounds()->set_broadcast_group(roster_.broadcast_group());
  response.mutable_rounds()->set_begun(standing_.begun);
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
    before = std::exchange(standing_, {}).bytes;
    cancel_forming_ = false;
    place.broadcast_group = roster_.Form();
    place.size = static_cast<int>(roster_.members().size()) + 1;
    metrics_.MembersAre(0);
    if (roster_.members().empty()) return;
    place.address = roster_.HostOf(roster_.members().front());
    place.device = standing_.device =
        IsGpu(options_.device) && roster_.AllOnGpus() ? "cuda" : "cpu";
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
    standing_.bytes = *std::move(joined);
    if (stopping_) standing_.bytes->Abort("the learner stops to publish");
    metrics_.MembersAre(roster_.members().size());
    OXBOW_LOG(Info) << "weights are broadcast" << Field("broadcast group", place.broadcast_group)
                    << Field("workers", roster_.members().size());
    return;
  }
  if (absl::IsCancelled(joined.status())) return;  // A member left: the next broadcast_group.
  roster_.Failed(parallel::BehindRanks(joined.status()));
  metrics_.GroupFailed();
  OXBOW_LOG(Warning) << "no broadcast group to broadcast weights in, workers relay them"
                     << Field("broadcast group", place.broadcast_group)
                     << Field("status", joined.status());
}

void BroadcastSender::Invite(uint64_t broadcast_group, const std::string& address) {
  {
    absl::MutexLock lock(&mutex_);
    if (roster_.broadcast_group() != broadcast_group) return;
    standing_.address = address;
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
    broadcast_group = standing_.bytes;
  }
  const absl::Duration start = clock_.Now();
  const absl::Status sent = Send(*broadcast_group, round);
  if (sent.ok()) {
    metrics_.Round("whole");
    metrics_.Took(clock_.Now() - start);
  } else {
    metrics_.Round("failed");
    OXBOW_LOG(Warning) << "weights not broadcast to all, workers relay them"
                       << Field("policy_version", round.manifest->policy_version())
                       << Field("status", sent);
  }
  absl::MutexLock lock(&mutex_);
  busy_ = false;
  if (sent.ok()) return roster_.Succeeded();
  roster_.Failed(parallel::BehindRanks(sent), round.manifest->policy_version());
  metrics_.MembersAre(0);
  standing_.bytes.reset();
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
                     metrics_.Sent(bytes);
                     if (clock_.Now() <= until) return absl::OkStatus();
                     return absl::DeadlineExceededError(
                         absl::StrCat("round takes longer than ", absl::FormatDuration(limit)));
                   });
}

}  // namespace oxbow::weights
