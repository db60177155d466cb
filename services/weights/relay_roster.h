// Who watches, who of them may pass weights on, and who lost that right.
//
// A watcher is named by the worker's id; it holds its place from Join to Leave. A peer with corrupt
// bytes is never handed out again; one that stalled or was not reached is not until it is heard of
// again. Accusations cost an innocent peer its children and nothing else: whoever accuses many is
// taken to be the broken one. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "oxbow/v1/weight_channel.pb.h"

namespace oxbow::weights {

class RelayRoster {
 public:
  // `fanout` 0: nobody relays.
  explicit RelayRoster(size_t fanout) : fanout_(fanout) {}

  // `endpoint` empty: cannot relay. An older place of the same worker is given up.
  using Ticket = uint64_t;
  Ticket Join(const std::string& worker, const std::string& endpoint);
  void Leave(Ticket ticket);

  // Whom this watcher shall ask before the learner. Empty for a place that was given up.
  std::vector<v1::WatchResponse::Peer> PeersOf(Ticket ticket);

  // True if the peer could be handed out until this report.
  bool Accuse(const v1::ReportPeerRequest& report);

  // The worker has just shown that it lives.
  void HeardOf(const std::string& worker);

  size_t watchers() const { return watchers_.size(); }
  size_t excluded() const { return corrupt_.size() + silent_.size(); }

 private:
  struct Watcher {
    std::string worker;
    std::string endpoint;
    std::vector<v1::WatchResponse::Peer> peers;  // As of the last plan.
  };
  bool MayRelay(const Watcher& watcher) const;
  void Plan();

  const size_t fanout_;
  Ticket next_ = 1;
  bool planned_ = false;
  std::map<Ticket, Watcher> watchers_;  // In the order they joined.
  std::set<std::string> corrupt_;
  std::set<std::string> silent_;
  std::map<std::string, std::set<std::string>> accused_by_;
};

// The host of a caller's address in gRPC's spelling ("ipv4:10.0.0.7:43210"), IPv6 in brackets.
// Empty if it came by no network.
std::string PeerHost(const std::string& peer);

// Where others reach a relay: `advertised` as it is, or with the host that `peer` (gRPC's spelling
// of the caller's address: "ipv4:10.0.0.7:43210") shows when `advertised` is a wildcard. Empty if
// it cannot be reached from elsewhere: a loopback address of another machine, or no address.
std::string RelayEndpoint(const std::string& advertised, const std::string& peer);

}  // namespace oxbow::weights
