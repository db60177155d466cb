// SPDX-License-Identifier: Apache-2.0
// Computes what the replay buffer must hold, from the buffer's answers.
//
// An answer may be lost although the call took effect. When asked again, the buffer answers
// DUPLICATE, and the entry that was displaced is unknown. A run may end before it asks again. Such
// an entry, and those that it may have displaced, may be present or absent.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/chaos/evidence.h"

namespace oxbow::chaos {

class OfferBook {
 public:
  explicit OfferBook(uint64_t capacity) : capacity_(capacity) {}

  // Handles an event of the learner's log; only answers of the buffer have an effect.
  void Hear(const Event& event);

  // The entries that are missing from `content`, or broken.
  std::vector<std::string> Missing(const std::vector<StoredEntry>& content) const;

  // Answers that are impossible: two entries of a prompt, too many entries, a victim that was
  // already gone.
  const std::vector<std::string>& impossible() const { return impossible_; }

 private:
  struct Page {
    std::map<uint64_t, uint64_t> live;  // Prompt -> entry that was acknowledged last.
    std::set<uint64_t> perhaps_gone;    // Live entries that a lost answer may have displaced.
    std::set<uint64_t> seen;
    std::set<uint64_t> dead;
    std::map<uint64_t, uint64_t> born;  // Entry -> learner step of its offer.
    uint64_t unknown_victims = 0;
  };
  void Answer(const Event& event);
  void Rewind(uint64_t step);
  void Displace(uint64_t victim, uint64_t by);

  const uint64_t capacity_;
  Page page_;
  uint64_t step_ = 0;  // The last answer's, with the number of answers of that step.
  uint64_t answers_ = 0;
  uint64_t most_answers_ = 0;
  std::map<std::string, Page> kept_;  // By checkpoint.
  std::vector<std::string> impossible_;
};

// A field that holds a number; 0 if it is absent.
uint64_t NumberIn(const Event& event, const std::string& field);
// The event's name.
const std::string& NameOf(const Event& event);

}  // namespace oxbow::chaos
