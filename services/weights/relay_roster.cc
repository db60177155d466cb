// SPDX-License-Identifier: Apache-2.0
#include "services/weights/relay_roster.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/ids.h"
#include "rpc/tls.h"

namespace oxbow::weights {
namespace {

// First the watchers that can relay, then the others, which so get the places at the bottom; both
// in the order they joined.
std::vector<size_t> ByPlace(const std::vector<bool>& relays) {
  std::vector<size_t> order;
  for (const bool wanted : {true, false}) {
    for (size_t i = 0; i < relays.size(); ++i) {
      if (relays[i] == wanted) order.push_back(i);
    }
  }
  return order;
}

// The sibling after `place` among the children of one parent; itself if it is an only child.
size_t NextSibling(size_t place, size_t fanout, size_t relays) {
  const size_t first = place / fanout * fanout;
  const size_t count = std::min(fanout, relays - first);
  return first + (place - first + 1) % count;
}

// A plan of some of the watchers, in terms of all of them.
std::vector<RelayPlace> PlanSome(const std::vector<bool>& relays, const std::vector<size_t>& some,
                                 size_t fanout) {
  std::vector<bool> theirs;
  for (const size_t i : some) theirs.push_back(relays[i]);
  std::vector<RelayPlace> places = PlanRelays(theirs, fanout);
  for (RelayPlace& place : places) {
    for (size_t& peer : place.peers) peer = some[peer];
  }
  return places;
}

// Below the head of their host.
RelayPlace Below(const RelayPlace& head_place, size_t head, RelayPlace place) {
  place.depth += head_place.depth;
  if (place.peers.empty()) {
    place.peers.push_back(head);
    if (!head_place.peers.empty()) place.peers.push_back(head_place.peers[0]);
  } else if (place.peers.size() == 1) {
    place.peers.push_back(head);
  }
  return place;
}

constexpr size_t kAccusedMax = 2;  // A host is believed about so many peers with corrupt bytes.

bool IsWildcard(const std::string& host) { return host == "0.0.0.0" || host == "[::]"; }

}  // namespace

std::vector<RelayPlace> PlanRelays(const std::vector<bool>& relays,
                                   const std::vector<std::string>& hosts, size_t fanout) {
  if (fanout == 0) return PlanRelays(relays, fanout);
  std::map<std::string, size_t> heads;
  for (size_t i = 0; i < relays.size(); ++i) {
    if (relays[i] && !hosts[i].empty()) heads.emplace(hosts[i], i);
  }
  std::vector<size_t> between;
  std::map<size_t, std::vector<size_t>> within;  // By head.
  for (size_t i = 0; i < relays.size(); ++i) {
    const auto head = heads.find(hosts[i]);
    const bool below = head != heads.end() && head->second != i;
    (below ? within[head->second] : between).push_back(i);
  }
  std::vector<RelayPlace> places(relays.size());
  const auto planned = PlanSome(relays, between, fanout);
  for (size_t k = 0; k < between.size(); ++k) places[between[k]] = planned[k];
  for (const auto& [head, others] : within) {
    const auto inner = PlanSome(relays, others, fanout);
    for (size_t k = 0; k < others.size(); ++k) {
      places[others[k]] = Below(places[head], head, inner[k]);
    }
  }
  return places;
}

std::vector<RelayPlace> PlanRelays(const std::vector<bool>& relays, size_t fanout) {
  const auto able = static_cast<size_t>(std::count(relays.begin(), relays.end(), true));
  std::vector<RelayPlace> places(relays.size());
  if (fanout == 0 || able == 0) return places;
  const std::vector<size_t> order = ByPlace(relays);
  for (size_t place = fanout; place < order.size(); ++place) {
    // The places of a full tree, level by level. Once there are no more relays, the rest is dealt
    // evenly.
    size_t parent = place / fanout - 1;
    if (parent >= able) parent = (place - fanout) % able;
    RelayPlace& mine = places[order[place]];
    mine.depth = places[order[parent]].depth + 1;
    mine.peers.push_back(order[parent]);
    const size_t uncle = NextSibling(parent, fanout, able);
    if (uncle != parent) {
      mine.peers.push_back(order[uncle]);
    } else if (parent >= fanout) {
      mine.peers.push_back(order[parent / fanout - 1]);
    }
  }
  return places;
}

RelayRoster::Ticket RelayRoster::Join(const std::string& worker, const std::string& endpoint,
                                      const std::string& host) {
  for (auto it = watchers_.begin(); it != watchers_.end();) {
    it = it->second.worker == worker && !worker.empty() ? watchers_.erase(it) : std::next(it);
  }
  watchers_[next_] = {worker, endpoint, host, {}};
  tickets_[worker] = next_;
  silent_.erase(worker);
  planned_ = false;
  return next_++;
}

void RelayRoster::Leave(Ticket ticket) {
  const auto found = watchers_.find(ticket);
  if (found == watchers_.end()) return;
  tickets_.erase(found->second.worker);
  watchers_.erase(found);
  planned_ = false;
}

RelayRoster::Origin RelayRoster::OriginOf(const std::string& worker) const {
  const std::string base(BaseWorkerId(worker));
  Origin origin{"", worker};
  for (const auto& [ticket, watcher] : watchers_) {
    if (watcher.worker == worker) return {watcher.host, base};
    if (BaseWorkerId(watcher.worker) == base) origin = {watcher.host, base};  // Started again.
  }
  return origin;
}

bool RelayRoster::IsCorrupt(const std::string& worker, const Origin& origin) const {
  return corrupt_.contains(worker) || corrupt_origins_.contains(origin);
}

// One without a name could not be reported.
bool RelayRoster::MayRelay(const Watcher& watcher) const {
  const Origin origin{watcher.host, std::string(BaseWorkerId(watcher.worker))};
  return !watcher.endpoint.empty() && !watcher.worker.empty() &&
         !IsCorrupt(watcher.worker, origin) && !silent_.contains(watcher.worker);
}

void RelayRoster::Plan() {
  std::vector<Watcher*> watchers;
  std::vector<bool> relays;
  std::vector<std::string> hosts;
  for (auto& [ticket, watcher] : watchers_) {
    watchers.push_back(&watcher);
    relays.push_back(MayRelay(watcher));
    // A call from the learner's own machine crosses no network.
    hosts.push_back(rpc::IsLoopback(watcher.host) ? "" : watcher.host);
  }
  const std::vector<RelayPlace> places = PlanRelays(relays, hosts, fanout_);
  for (size_t i = 0; i < places.size(); ++i) {
    watchers[i]->peers.clear();
    for (const size_t peer : places[i].peers) {
      v1::WatchResponse::Peer& entry = watchers[i]->peers.emplace_back();
      entry.set_worker_id(watchers[peer]->worker);
      entry.set_endpoint(watchers[peer]->endpoint);
    }
  }
  planned_ = true;
}

std::vector<v1::WatchResponse::Peer> RelayRoster::PeersOf(Ticket ticket) {
  if (!planned_) Plan();
  const auto found = watchers_.find(ticket);
  if (found == watchers_.end()) return {};
  return found->second.peers;
}

std::string RelayRoster::EndpointOf(const std::string& worker) const {
  const auto ticket = tickets_.find(worker);
  if (fanout_ == 0 || ticket == tickets_.end()) return "";
  const Watcher& watcher = watchers_.at(ticket->second);
  return MayRelay(watcher) ? watcher.endpoint : "";
}

bool RelayRoster::WatchesFrom(const std::string& worker, const std::string& host) const {
  return std::any_of(watchers_.begin(), watchers_.end(), [&](const auto& item) {
    return item.second.worker == worker && item.second.host == host;
  });
}

bool RelayRoster::Accuse(const v1::ReportPeerRequest& report, const std::string& host) {
  if (!WatchesFrom(report.worker_id(), host)) return false;
  const std::string& peer = report.peer().worker_id();
  const Origin origin = OriginOf(peer);
  if (peer.empty() || peer == report.worker_id() || IsCorrupt(peer, origin)) return false;
  const bool corrupt = report.fault() == v1::PEER_FAULT_CORRUPT;
  if (!corrupt && silent_.contains(peer)) return false;
  if (corrupt) {
    std::set<Origin>& accused = accused_by_[host];
    if (accused.size() >= kAccusedMax && !accused.contains(origin)) return false;
    accused.insert(origin);
    corrupt_.insert(peer);
    corrupt_origins_.insert(origin);
    silent_.erase(peer);
  } else {
    silent_.insert(peer);
  }
  planned_ = false;
  return true;
}

void RelayRoster::HeardOf(const std::string& worker) {
  if (silent_.erase(worker) > 0) planned_ = false;
}

std::string PeerHost(const std::string& peer) {
  // "ipv6:%5B::1%5D:5000" in gRPC's URI spelling.
  const std::string address = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  const size_t scheme = address.find(':');
  const size_t port = address.rfind(':');
  const bool known =
      scheme != std::string::npos && port > scheme && absl::StartsWith(address, "ip");
  return known ? address.substr(scheme + 1, port - scheme - 1) : "";
}

std::string RelayEndpoint(const std::string& advertised, const std::string& peer) {
  const size_t colon = advertised.rfind(':');
  if (colon == std::string::npos) return "";
  const std::string host = advertised.substr(0, colon);
  const std::string from = PeerHost(peer);
  if (IsWildcard(host)) return from.empty() ? "" : absl::StrCat(from, advertised.substr(colon));
  const bool here = from.empty() || rpc::IsLoopback(from);
  return host == from || (here && rpc::IsLoopback(host)) ? advertised : "";
}

}  // namespace oxbow::weights
