// The order in which a run takes its prompts: one permutation after another, each keyed by
// (run seed, pass over the data), so that a position of two integers is all a resumed run needs.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/philox.h"
#include "oxbow/v1/common.pb.h"

namespace oxbow::learner {

// Where in the order a run is: `taken` prompts of pass `pass` are behind it.
struct PromptPosition {
  uint64_t pass = 0;
  uint64_t taken = 0;
  bool operator==(const PromptPosition&) const = default;
};

class PromptOrder {
 public:
  // Requires at least one prompt; ids are distinct.
  PromptOrder(std::vector<v1::Prompt> prompts, uint64_t seed, PromptPosition position = {});

  // Takes the next prompt whose id is not in `taken_ids`, and adds its id to them. Prompts that are
  // skipped count as taken. Requires a prompt that is not in `taken_ids`.
  v1::Prompt TakeNext(std::set<uint64_t>& taken_ids);

  // Up to `count` prompts besides the order, whose ids are not in `taken_ids` and are added to
  // them: the first of a permutation that belongs to `step`. The position does not move, so that a
  // resumed run takes the same.
  std::vector<v1::Prompt> TakeExtra(LearnerStep step, size_t count,
                                    std::set<uint64_t>& taken_ids) const;

  PromptPosition position() const { return position_; }
  size_t size() const { return prompts_.size(); }

 private:
  std::vector<uint32_t> Permutation(const StreamKey& key) const;
  void Shuffle();

  const std::vector<v1::Prompt> prompts_;
  const uint64_t seed_;
  PromptPosition position_;
  std::vector<uint32_t> order_;  // Of the current pass.
};

}  // namespace oxbow::learner
