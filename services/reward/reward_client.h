// SPDX-License-Identifier: Apache-2.0
// Asks reward servers for scores, with a deadline for each call. Never invents a value.
//
// Each server is asked for the rewards that it has; servers that have the same ones take turns.
// Batches go out side by side. Two things can go wrong with a reward of an image, and callers
// treat them apart (IsUnscorable):
//
//   no score    a server answered, and what it said is no finite number. The reward is asked for
//               again, kAnswersMax times in all; the same image would fail in the next call, too.
//               Where the server says that the image cannot be scored (IsFinal), once is enough
//   absence     no server answers. Each reward of each server has a circuit breaker; a call waits
//               for the first that answers, or gives up, as its Patience says. The image may be
//               scored later. A busy server is not asked before the pause that it asked for is
//               over, as far as that is no longer than `timeout`
//
// An observed reward that fails in either way is left out of the scores of its image, and nobody
// waits for it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/image8.h"
#include "core/reward/scorer.h"
#include "oxbow/v1/config.pb.h"
#include "services/reward/reward_directory.h"
#include "services/reward/score_call.h"

namespace oxbow::reward {

// By reward name. An observed reward without a score is not among them.
using Scores = std::map<std::string, double>;

// Answers without a score after which an image has none.
inline constexpr int kAnswersMax = 3;

// How long a call goes on while no server answers.
struct Patience {
  bool waits = false;  // For a server to come back. False: `tries` silent calls are enough.
  absl::Duration limit = absl::InfiniteDuration();  // For the whole call.
  // Called with the reason after each try from which on the call waits; from several threads.
  std::function<void(const std::string&)> says = nullptr;
};

class RewardClient {
 public:
  struct Options {
    std::vector<std::string> endpoints;
    std::set<std::string> elsewhere;    // Endpoints that may be anybody's: pinged rarely.
    std::vector<std::string> rewards;   // Wanted names; empty: all that the servers describe.
    std::vector<std::string> observed;  // Wanted rewards that may be missing.
    // By name: a server whose reward has another identity is not asked for it.
    std::map<std::string, std::string> identities;
    // By endpoint: rewards that it is not asked for, though it may have them.
    std::map<std::string, std::set<std::string>> not_asked = {};
    int tries = 3;  // Silent calls, over all replicas, that make an absence.
    absl::Duration timeout = absl::Seconds(30);  // For one try of one batch.
    CircuitBreaker::Options breaker = {};        // No rest is longer than `timeout`.
    // How pictures travel. Over JPEG the identities of rewards have a suffix: their scores are
    // others.
    v1::PictureTransport transport = v1::PICTURE_TRANSPORT_RAW;
    const Clock* clock = &Clock::Steady();
  };

  // Asks no server yet. kInvalidArgument if no endpoint is given.
  static absl::StatusOr<std::unique_ptr<RewardClient>> Connect(Options options);
  // Connect, then Describe.
  static absl::StatusOr<std::unique_ptr<RewardClient>> Create(Options options);
  ~RewardClient();

  // Asks every server to describe itself. kUnavailable if none answers, or if a reward may be on
  // one that does not; kInvalidArgument if no server has a wanted reward, or two have different
  // ones of one name; kCancelled. Required once before Score.
  absl::Status Describe();

  // Describe, again and again until a server answers. Calls `says` with the reason each time that
  // none does. kCancelled after GiveUpWaiting or Cancel.
  absl::Status AwaitDescription(const std::function<void(const std::string&)>& says = nullptr);

  // Adds to Options::identities. Thread-safe.
  void Pin(const std::map<std::string, std::string>& identities);

  // Facts of the wanted rewards, as the servers told them in Describe. Thread-safe.
  std::map<std::string, RewardFacts> Facts() const;

  // Scores the pictures or videos of one prompt, a whole group. One result per medium, in order:
  // all wanted rewards but for observed ones that failed, or the reason why the image could not be
  // scored. Values are finite: NaN from a server is an error of that image. If a call fails in
  // transport, the next server gets what is still unanswered. Thread-safe.
  std::vector<absl::StatusOr<Scores>> ScoreMedia(const std::string& prompt_text,
                                                 const std::string& prompt_metadata_json,
                                                 const std::vector<Frames>& media,
                                                 const Patience& patience = {});

  // Why some call waits for a server; empty if none waits. Thread-safe.
  std::string waiting() const;

  // From now on no call waits for a server: Score returns kUnavailable instead. Thread-safe.
  void GiveUpWaiting();
  // Ends all calls at once, and later ones, with kCancelled. Thread-safe.
  void Cancel();

 private:
  struct Impl;
  explicit RewardClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::reward
