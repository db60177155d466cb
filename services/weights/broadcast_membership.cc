// SPDX-License-Identifier: Apache-2.0
#include "services/weights/broadcast_membership.h"

#include <algorithm>
#include <utility>

namespace oxbow::weights {
namespace {

constexpr uint32_t kDoublingsMax = 6;
constexpr size_t kStrikesKept = 1024;  // Workers, whether they come back or not.

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

}  // namespace oxbow::weights
