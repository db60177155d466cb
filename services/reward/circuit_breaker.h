// SPDX-License-Identifier: Apache-2.0
// Decides when a server that did not answer is asked again: after a rest that doubles with each
// failure in a row. When a rest is over, one caller tries while the others wait for its outcome.
// Pure: time and jitter are parameters. Not thread-safe.
#pragma once

#include "absl/time/time.h"

namespace oxbow::reward {

class CircuitBreaker {
 public:
  struct Options {
    absl::Duration rest_first = absl::Milliseconds(250);
    absl::Duration rest_max = absl::Seconds(10);
  };
  explicit CircuitBreaker(Options options) : options_(options) {}

  // True if the caller may ask the server at `now`. After a rest it is true once, and then again
  // when `trial`, the time that this caller has, is over without an outcome.
  bool Admits(absl::Duration now, absl::Duration trial);

  void Answered() { failures_ = 0; }

  // `jitter` in [0, 1] spreads callers of one server: the rest is between half of its full length
  // (0) and all of it (1). It is no shorter than `pause`, which the server asked for; callers that
  // were told the same pause are spread over a quarter more of it.
  void Failed(absl::Duration now, double jitter, absl::Duration pause = absl::ZeroDuration());

  // Admits is false before this time, unless an answer comes.
  absl::Duration next() const { return failures_ == 0 ? absl::ZeroDuration() : until_; }

 private:
  const Options options_;
  int failures_ = 0;  // In a row.
  absl::Duration until_;
};

}  // namespace oxbow::reward
