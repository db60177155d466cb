// SPDX-License-Identifier: Apache-2.0
// The reward servers that have each reward, and those that may be asked now: in turn, with a
// circuit breaker for each reward of each server. Pure: time and jitter are parameters. Not
// thread-safe.
//
// A server that has not described itself may have any reward, so it is asked that first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/reward/scorer.h"

namespace oxbow::reward {

// Decides when a server that did not answer is asked again: after a rest that doubles with each
// failure in a row. When a rest is over, one caller tries while the others wait for its outcome.
// Pure: time and jitter are parameters. Not thread-safe.
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

class RewardDirectory {
 public:
  // One server, and those of the wanted rewards that it may be asked for. None: it is to describe
  // itself.
  struct Turn {
    size_t server = 0;
    std::vector<std::string> rewards;
  };

  // `identities`: of rewards that must have this one and no other, by name.
  RewardDirectory(std::vector<std::string> endpoints, CircuitBreaker::Options breaker,
                  std::map<std::string, std::string> identities = {});

  // Takes a server's facts. kInvalidArgument if one of its rewards has another identity than it
  // must have, or than the same reward of another server: their scores must not be mixed, so the
  // later one is left out here.
  absl::Status Described(size_t server, const std::vector<RewardFacts>& rewards, size_t batch_max);
  // Adds identities.
  void Pin(const std::map<std::string, std::string>& identities) {
    for (const auto& [name, identity] : identities) identities_[name] = identity;
  }
  // The rewards of this server may have changed: it is to describe itself again.
  void Forget(size_t server) { servers_[server].described = false; }

  // The next server that has some of `wanted` and may be asked. `trial` is the time of the caller.
  std::optional<Turn> Next(const std::vector<std::string>& wanted, absl::Duration now,
                           absl::Duration trial);
  // When Next may find a server that it does not find now; infinite if none has these rewards.
  absl::Duration RestOver(const std::vector<std::string>& wanted) const;
  // Takes note of an answer (OK) or an absence. `rewards` as in a Turn. `pause`: how long the
  // server asked to be left alone.
  void Note(size_t server, const std::string& reward, bool answered, absl::Duration now,
            double jitter, absl::Duration pause = absl::ZeroDuration());

  // Facts of all rewards, as the first server says that has them.
  std::map<std::string, RewardFacts> Facts() const;
  // The servers that have the reward.
  std::set<size_t> ServersOf(const std::string& reward) const;
  // OK if each reward has a server. kUnavailable if a silent server may have it; kInvalidArgument
  // names the reward, and what there is.
  absl::Status CheckNames(const std::vector<std::string>& wanted) const;
  // Items of one request for these rewards, to any described server.
  size_t BatchMax(const std::vector<std::string>& rewards) const;
  // The greatest n so that the frames 0, n, 2n, ... of a video have all that some server reads for
  // these rewards. A server of a protocol without frames_every reads all.
  uint32_t FramesEvery(const std::vector<std::string>& rewards) const;
  size_t BatchMax(size_t server) const { return servers_[server].batch_max; }

 private:
  struct Server {
    std::string endpoint;
    bool described = false;                           // By what it is now.
    std::map<std::string, RewardFacts> rewards = {};  // As it last said.
    size_t batch_max = 1;
    std::map<std::string, CircuitBreaker> breakers = {};  // By reward; "" is Describe.
  };
  absl::Status CheckIdentity(size_t server, const RewardFacts& facts) const;
  CircuitBreaker& BreakerOf(Server& server, const std::string& reward);

  const CircuitBreaker::Options breaker_;
  std::map<std::string, std::string> identities_;
  std::vector<Server> servers_;
  size_t turn_ = 0;
};

// Cuts the images of a call into batches for reward servers.
//
// Rewards that the same servers have travel together, so that an image is sent to a server once.
// A groupwise reward gets a batch of its own that holds the whole group. Of videos those frames
// travel that some reward of the batch reads.
struct ScoreBatch {
  std::vector<size_t> images;  // Indices.
  std::vector<std::string> rewards;
  bool whole_group = false;
  // The frames 0, n, 2n, ... of a video travel: all that these rewards read.
  uint32_t frames_every = 1;
  std::string too_large = {};  // Why the batch cannot be sent; empty: it can.
};

// Bytes of pixels, at most.
struct BatchLimits {
  uint64_t batch_bytes = 0;      // A batch of several media has, unless it is a whole group.
  uint64_t medium_bytes = 0;     // One medium has.
  uint64_t group_bytes = 0;      // A group has that travels whole.
  uint64_t frames = UINT64_MAX;  // One video has that travel.
};

// One picture, or one video.
struct MediumSize {
  uint64_t frame_bytes = 0;  // Bytes of the pixels of one frame.
  uint64_t frames = 1;

  // Frames that travel where every n-th does, and the bytes of their pixels.
  uint64_t frames_sent(uint32_t every) const { return (frames + every - 1) / every; }
  uint64_t bytes_sent(uint32_t every) const { return frames_sent(every) * frame_bytes; }
};

// Batches that keep the limits and what the servers take. Every image is in one batch of each
// reward.
std::vector<ScoreBatch> PlanBatches(const RewardDirectory& directory,
                                    const std::vector<std::string>& rewards,
                                    const std::vector<MediumSize>& sizes,
                                    const BatchLimits& limits);

}  // namespace oxbow::reward
