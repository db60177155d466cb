// A queue before one or more equal servers, first come first served: a network link, the reward
// servers, the coordinator's lock. In virtual time a job's end is known when it arrives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace oxbow::simulate {

class SerialServer {
 public:
  // `servers` 0: as many as it takes, so that no job waits.
  explicit SerialServer(uint32_t servers) : unlimited_(servers == 0) {
    for (uint32_t i = 0; i < servers; ++i) free_at_.push(0);
  }

  // A job of `seconds` arrives at `now`; returns when it is done. Requires that jobs arrive in
  // order of time.
  double Serve(double now, double seconds) {
    busy_s_ += seconds;
    if (unlimited_ || seconds <= 0) return now + seconds;
    const double done = std::max(now, free_at_.top()) + seconds;
    free_at_.pop();
    free_at_.push(done);
    return done;
  }

  // When a server is free for a job that arrives at `now`.
  double FreeAt(double now) const { return unlimited_ ? now : std::max(now, free_at_.top()); }

  double busy_s() const { return busy_s_; }  // Sum over servers.

 private:
  const bool unlimited_;
  double busy_s_ = 0;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at_;
};

}  // namespace oxbow::simulate
