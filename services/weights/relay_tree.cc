// SPDX-License-Identifier: Apache-2.0
#include "services/weights/relay_tree.h"

#include <algorithm>

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

}  // namespace

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

}  // namespace oxbow::weights
