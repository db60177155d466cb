// SPDX-License-Identifier: Apache-2.0
// The watchers: which of them may pass weights on, and which lost that right.
//
// A watcher is named by the worker's id and has its place from Join to Leave. A peer that sent
// corrupt bytes is never given out as a source again; one that stalled or could not be reached is
// given out again once it reports. A wrong accusation costs a peer its children and nothing else.
//
// A name is what a caller says of itself, so names count for nothing: an accusation is heard only
// from the host of a watcher of that name, and a host that accuses many peers is taken to be the
// broken one. Callers behind one NAT or proxy are one host. Processes of one host whose names have
// one base (BaseWorkerId) are one worker: who sent corrupt bytes and was started again as NAME.1 is
// no source either, and counts once. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "oxbow/v1/weight_channel.pb.h"

namespace oxbow::weights {

// The workers from which each worker fetches when many want the same weights.
//
//   learner --> 0 --> 2 --> 6 ...        fan-out 2, watchers in the order they joined
//           |     \-> 3
//           \-> 1 --> 4
//                 \-> 5
//
// The learner serves `fanout` watchers, each of them `fanout` more, and so on. The bytes that the
// learner sends do not grow with the number of watchers; the time grows with its logarithm.
// Watchers that cannot or must not relay come last and are no source.

// A watcher's sources besides the learner, which is always the last one.
struct RelayPlace {
  size_t depth = 1;  // Hops from the learner when the first source answers.
  // Indices of watchers, to be asked in this order: the parent, and one of the parent's siblings
  // (an only child's parent) in case it fails. All of them are nearer to the learner than this
  // watcher, so no watcher waits for itself. Empty: only the learner.
  std::vector<size_t> peers;
};

// A place for each of N watchers; relays[i]: watcher i, i-th in the order they joined, may be a
// source. If R of them may, each serves at most max(fanout, ceil((N - fanout) / R)) as a parent;
// the learner serves min(N, fanout), or all if R = 0. `fanout` 0: all ask the learner.
std::vector<RelayPlace> PlanRelays(const std::vector<bool>& relays, size_t fanout);

// The same where several watchers run on one machine: a snapshot crosses the network once for each
// machine. hosts[i]: where watcher i runs; empty: on a machine of its own. Of each host the first
// watcher that may be a source has a place in the tree above, as have all watchers of hosts without
// one. The other watchers of its host are a tree below it, in which it is the learner; its children
// get its first peer as their second one.
std::vector<RelayPlace> PlanRelays(const std::vector<bool>& relays,
                                   const std::vector<std::string>& hosts, size_t fanout);

class RelayRoster {
 public:
  // `fanout` 0: no worker relays.
  explicit RelayRoster(size_t fanout) : fanout_(fanout) {}

  // `endpoint` empty: cannot relay. `host`: where the call comes from. An older place of the same
  // worker is given up.
  using Ticket = uint64_t;
  Ticket Join(const std::string& worker, const std::string& endpoint, const std::string& host);
  void Leave(Ticket ticket);

  // The peers that this watcher shall ask before the learner. Empty for a place that was given up.
  std::vector<v1::WatchResponse::Peer> PeersOf(Ticket ticket);

  // Where others reach this worker; empty if it may not be a source.
  std::string EndpointOf(const std::string& worker) const;

  // A report that came from `host`. True if the peer could be given out until then.
  bool Accuse(const v1::ReportPeerRequest& report, const std::string& host);

  // The worker has just shown that it is alive.
  void HeardOf(const std::string& worker);

  size_t watchers() const { return watchers_.size(); }
  size_t excluded() const { return corrupt_.size() + silent_.size(); }

 private:
  struct Watcher {
    std::string worker;
    std::string endpoint;
    std::string host;
    std::vector<v1::WatchResponse::Peer> peers;  // From the last plan.
  };
  bool MayRelay(const Watcher& watcher) const;
  // Host and base name of a worker, or of a process that has followed it.
  using Origin = std::pair<std::string, std::string>;
  Origin OriginOf(const std::string& worker) const;
  bool IsCorrupt(const std::string& worker, const Origin& origin) const;
  bool WatchesFrom(const std::string& worker, const std::string& host) const;
  void Plan();

  const size_t fanout_;
  Ticket next_ = 1;
  bool planned_ = false;
  std::map<Ticket, Watcher> watchers_;     // In the order they joined.
  std::map<std::string, Ticket> tickets_;  // By worker.
  std::set<std::string> corrupt_;
  std::set<Origin> corrupt_origins_;
  std::set<std::string> silent_;
  std::map<std::string, std::set<Origin>> accused_by_;  // By host.
};

// The host of a caller's address in gRPC's spelling ("ipv4:10.0.0.7:43210"), IPv6 in brackets.
// Empty if the call did not come over a network.
std::string PeerHost(const std::string& peer);

// The address at which others reach a relay: the host of `peer` (gRPC's spelling of the caller's
// address: "ipv4:10.0.0.7:43210") and the port of `advertised`, whose host must be a wildcard, or
// that host. Empty otherwise: nobody may send others to a third machine. So a worker that listens
// on another interface than the one that leads to the learner, under a host name, or behind a NAT
// does not relay; one that listens on a wildcard does.
std::string RelayEndpoint(const std::string& advertised, const std::string& peer);

}  // namespace oxbow::weights
