// Measures a set of images of the task `compose`: the reward and its parts, and what the reward
// does not show.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tasks/compose.h"
#include "tasks/compose_reading.h"

namespace oxbow::tasks {

struct ComposeReport {
  int64_t images = 0;
  double reward = 0;         // Mean partial credit.
  double reward_stderr = 0;  // Its standard error.
  double strict = 0;         // Share with everything right.
  double count = 0;          // Means of the parts of the credit.
  double shapes = 0;
  double colours = 0;
  double relation = 0;
  double speckle = 0;     // Mean grey noise; see Speckle.
  double unreadable = 0;  // Share of unreadable cells.
  // Among right images: share of the least used of the four right places, times four, averaged over
  // relations. 1: all places are used equally; 0: at least one place is never used.
  double place_balance = 0;
};

// Counts images one by one.
class ComposeCounter {
 public:
  // `pixels`: as for ReadCompose.
  void Add(const Scene& wanted, std::span<const uint8_t> pixels);
  ComposeReport Report() const;  // All zero if nothing was added.

 private:
  double PlaceBalance() const;

  ComposeReport sums_;  // Sums of the values whose means are in the report.
  double reward_squares_ = 0;
  std::array<std::array<int64_t, 4>, kRelationCount> places_ = {};
};

}  // namespace oxbow::tasks
