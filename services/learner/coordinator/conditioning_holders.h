// SPDX-License-Identifier: Apache-2.0
// Workers that were last leased a group of a conditioning, so that the next one asks them for it.
// Only the last few workers are remembered, and conditionings that were leased longest ago are
// forgotten. That a worker is remembered does not mean that it still holds it. Not thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <vector>

namespace oxbow::learner {

class ConditioningHolders {
 public:
  struct Options {
    size_t conditionings_max = 262'144;  // About 100 MB.
    size_t workers_max = 2;              // For each.
  };

  ConditioningHolders() : ConditioningHolders(Options()) {}
  explicit ConditioningHolders(Options options) : options_(options) {}

  // `worker` gets a conditioning of this hash.
  void Given(const std::string& sha256, const std::string& worker);

  // Those it was given to, the newest first.
  std::vector<std::string> Of(const std::string& sha256) const;

  size_t conditionings() const { return held_.size(); }

 private:
  struct Held {
    std::vector<std::string> workers;              // The newest first.
    std::list<const std::string*>::iterator turn;  // In turns_.
  };

  const Options options_;
  std::map<std::string, Held> held_;     // By hash.
  std::list<const std::string*> turns_;  // Keys of held_; given last, last.
};

}  // namespace oxbow::learner
