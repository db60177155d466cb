// Who fetches from whom when many workers want the same weights.
//
//   learner --> 0 --> 2 --> 6 ...        fan-out 2, watchers in the order they joined
//           |     \-> 3
//           \-> 1 --> 4
//                 \-> 5
//
// The learner serves `fanout` watchers, each of them `fanout` more, and so on: what the learner
// sends does not grow with their number, the time grows like its logarithm. Who cannot relay, or
// must not, comes last and is nobody's source. A pure function: the learner and a test see the same
// tree.
#pragma once

#include <cstddef>
#include <vector>

namespace oxbow::weights {

// A watcher's sources besides the learner, which is always the last one.
struct RelayPlace {
  size_t depth = 1;  // Hops from the learner when the first source answers.
  // Indices of watchers, to be asked in this order: the parent, and one of the parent's siblings
  // (an only child's parent) in case it fails. All of them are nearer to the learner than this
  // watcher, so nobody waits for itself. Empty: the learner alone.
  std::vector<size_t> peers;
};

// A place for each watcher; relays[i]: watcher i, i-th in the order they joined, may be a source.
// With R watchers that may, each serves at most max(fanout, ceil((N - fanout) / R)) as a parent;
// the learner serves min(N, fanout), or everyone if R = 0. `fanout` 0: everyone asks the learner.
std::vector<RelayPlace> PlanRelays(const std::vector<bool>& relays, size_t fanout);

}  // namespace oxbow::weights
