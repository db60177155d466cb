// The watchers: which of them may pass weights on, and which lost that right.
//
// A watcher is named by the worker's id and has its place from Join to Leave. A peer that sent
// corrupt bytes is never given out as a source again; one that stalled or could not be reached is
// given out again once it reports. A wrong accusation costs a peer its children and nothing else: a
// worker that accuses many peers is taken to be the broken one. Not thread-safe.
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
  // `fanout` 0: no worker relays.
  explicit RelayRoster(size_t fanout) : fanout_(fanout) {}

  // `endpoint` empty: cannot relay. An older place of the same worker is given up.
  using Ticket = uint64_t;
  Ticket Join(const std::string& worker, const std::string& endpoint);
  void Leave(Ticket ticket);

  // The peers that this watcher shall ask before the learner. Empty for a place that was given up.
  std::vector<v1::WatchResponse::Peer> PeersOf(Ticket ticket);

  // True if the peer could be given out until this report.
  bool Accuse(const v1::ReportPeerRequest& report);

  // The worker has just shown that it is alive.
  void HeardOf(const std::string& worker);

  size_t watchers() const { return watchers_.size(); }
  size_t excluded() const { return corrupt_.size() + silent_.size(); }

 private:
  struct Watcher {
    std::string worker;
    std::string endpoint;
    std::vector<v1::WatchResponse::Peer> peers;  // From the last plan.
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
// Empty if the call did not come over a network.
std::string PeerHost(const std::string& peer);

// The address at which others reach a relay: `advertised`, or, if that is a wildcard, its port at
// the host of `peer` (gRPC's spelling of the caller's address: "ipv4:10.0.0.7:43210"). Empty if
// others cannot reach it: a loopback address of another machine, or no address.
std::string RelayEndpoint(const std::string& advertised, const std::string& peer);

}  // namespace oxbow::weights
