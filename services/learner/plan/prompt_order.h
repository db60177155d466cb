// SPDX-License-Identifier: Apache-2.0
// The order in which a run takes its prompts: one permutation after another, each keyed by (run
// seed, pass over the data). A resumed run needs only a position of two integers. Or a ranking for
// each step, which somebody else makes (PromptChoice); then the position never moves.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/philox.h"
#include "oxbow/v1/common.pb.h"

namespace oxbow::learner {

// A position in the order: `taken` prompts of pass `pass` have been taken.
struct PromptPosition {
  uint64_t pass = 0;
  uint64_t taken = 0;
  bool operator==(const PromptPosition&) const = default;
};

class PromptOrder {
 public:
  // Requires at least one prompt; ids are distinct.
  PromptOrder(std::vector<v1::Prompt> prompts, uint64_t seed, PromptPosition position = {});

  // Takes the next prompt whose id is not in `taken_ids`, and adds its id to them. Skipped prompts
  // count as taken. Requires a prompt whose id is not in `taken_ids`.
  v1::Prompt TakeNext(std::set<uint64_t>& taken_ids);

  // The next `count` prompts of this pass, fewer where it ends, if nobody ranks them. The position
  // does not move.
  std::vector<v1::Prompt> Upcoming(size_t count) const;

  // Takes up to `count` extra prompts whose ids are not in `taken_ids`, and adds their ids: the
  // first ones of a permutation that belongs to `step`. The position does not move, so a resumed
  // run takes the same prompts.
  std::vector<v1::Prompt> TakeExtra(LearnerStep step, size_t count,
                                    std::set<uint64_t>& taken_ids) const;

  // From now on prompts are taken in the order of `ranking`, places of all prompts from 0: the
  // first ones whose ids are not taken, by both calls above.
  void TakeBy(std::vector<uint32_t> ranking);

  PromptPosition position() const { return position_; }
  size_t size() const { return prompts_.size(); }
  const std::vector<v1::Prompt>& prompts() const { return prompts_; }

 private:
  std::vector<uint32_t> Permutation(const StreamKey& key) const;
  void Shuffle();
  // Up to `count` prompts that are not taken, in this order.
  std::vector<v1::Prompt> FirstOf(const std::vector<uint32_t>& order, size_t count,
                                  std::set<uint64_t>& taken_ids) const;

  const std::vector<v1::Prompt> prompts_;
  const uint64_t seed_;
  PromptPosition position_;
  std::vector<uint32_t> order_;    // Permutation of the current pass.
  std::vector<uint32_t> ranking_;  // Takes its place; empty: none.
};

}  // namespace oxbow::learner
