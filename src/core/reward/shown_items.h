// SPDX-License-Identifier: Apache-2.0
// Items as a scorer is shown them, and what its answers say of them.
//
//   picture, or a video and a scorer of videos   the item, with the frames that the scorer reads
//   video and a scorer of pictures               each of these frames as an item of its own; the
//                                                score of the video is their mean
//
// A frame without a score leaves its video without one.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/reward/scorer.h"

namespace oxbow::reward {

class ShownItems {
 public:
  // The data of the items outlives this. Frames are copied only where a scorer of videos reads
  // fewer than are there.
  ShownItems(const RewardFacts& facts, absl::Span<const Item> items);

  const std::vector<Item>& items() const { return shown_; }

  // One score per item, from one per shown item. An item of a medium that the scorer does not read,
  // and a video without the frames that it reads, is kInvalidArgument.
  std::vector<absl::StatusOr<Score>> Combine(std::vector<absl::StatusOr<Score>> scores) const;

 private:
  // The shown items of one item.
  struct Part {
    absl::Status refusal;
    size_t first = 0;
    size_t count = 0;
  };
  void Show(const RewardFacts& facts, const Item& item, size_t stride);

  std::vector<Part> parts_;
  std::vector<Item> shown_;
  std::deque<std::vector<Image8>> chosen_;  // Frames that had to be copied.
};

}  // namespace oxbow::reward
