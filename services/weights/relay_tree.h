// SPDX-License-Identifier: Apache-2.0
// The workers from which each worker fetches when many want the same weights.
//
//   learner --> 0 --> 2 --> 6 ...        fan-out 2, watchers in the order they joined
//           |     \-> 3
//           \-> 1 --> 4
//                 \-> 5
//
// The learner serves `fanout` watchers, each of them `fanout` more, and so on. The bytes that the
// learner sends do not grow with the number of watchers; the time grows with its logarithm.
// Watchers that cannot or must not relay come last and are no source. A pure function: the learner
// and a test see the same tree.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace oxbow::weights {

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

}  // namespace oxbow::weights
