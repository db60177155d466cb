// SPDX-License-Identifier: Apache-2.0
#include "services/weights/relay_tree.h"

#include <algorithm>
#include <map>

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

}  // namespace oxbow::weights
