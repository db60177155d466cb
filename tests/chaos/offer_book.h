// What the replay buffer must hold, kept by whoever hears its answers.
//
// An answer may be lost although the call took effect; asked again, the buffer says DUPLICATE, and
// what the entry displaced is not known. Such an entry, and what it may have displaced, may be
// there or not.
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

  // An event of the learner's log; others than the buffer's answers change nothing.
  void Hear(const Event& event);

  // What is missing from `content`, or broken.
  std::vector<std::string> Missing(const std::vector<StoredEntry>& content) const;

  // Answers that cannot be: two entries of a prompt, too many entries, a victim that was dead.
  const std::vector<std::string>& impossible() const { return impossible_; }

 private:
  struct Page {
    std::map<uint64_t, uint64_t> live;  // Prompt -> entry that was acknowledged last.
    std::set<uint64_t> perhaps_gone;    // Of those, what a lost answer may have displaced.
    std::set<uint64_t> seen;
    std::set<uint64_t> dead;
    uint64_t unknown_victims = 0;
  };
  void Answer(const Event& event);
  void Displace(uint64_t victim, uint64_t by);

  const uint64_t capacity_;
  Page page_;
  std::map<std::string, Page> kept_;  // By checkpoint.
  std::vector<std::string> impossible_;
};

// A field that holds a number; 0 without it.
uint64_t NumberIn(const Event& event, const std::string& field);
// The event's name.
const std::string& NameOf(const Event& event);

}  // namespace oxbow::chaos
