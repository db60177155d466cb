// Asks reward servers for scores: replicas in turn, with a deadline and a few tries per batch.
// Never invents a value.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/image8.h"

namespace oxbow::reward {

using Scores = std::map<std::string, double>;  // By reward name.

class RewardClient {
 public:
  struct Options {
    std::vector<std::string> endpoints;
    std::vector<std::string> rewards;  // Wanted names; empty: all that the servers describe.
    int tries = 3;                     // For transport failures, over all replicas.
    absl::Duration timeout = absl::Seconds(30);  // For one try of one batch.
    absl::Duration rest = absl::Seconds(5);      // For so long a failed replica comes last.
    // For so long busy servers are asked again, if the caller does not say when to stop.
    absl::Duration busy_max = absl::Minutes(10);
    const Clock* clock = &Clock::Steady();
  };

  using Pause = std::function<bool(absl::Duration)>;

  // Asks every replica to describe itself. kUnavailable if none answers; kInvalidArgument if a
  // replica that answers does not have a wanted name, or if no endpoint is given.
  static absl::StatusOr<std::unique_ptr<RewardClient>> Create(Options options);
  ~RewardClient();

  // One result per image, in order: all wanted rewards, or the reason why the image could not be
  // scored. Values are finite: NaN from a server is an error of that image. If a call fails in
  // transport, the next replica gets the images that are still unanswered. A server that answers
  // RESOURCE_EXHAUSTED is busy and has not failed: when all replicas are, they are asked again
  // after a pause, which costs no try. `pause` waits for the given time, and is false when the
  // scores are no longer wanted. Thread-safe.
  std::vector<absl::StatusOr<Scores>> Score(const std::string& prompt_text,
                                            const std::string& prompt_metadata_json,
                                            const std::vector<Image8>& images,
                                            const Pause& pause = nullptr);

 private:
  struct Impl;
  explicit RewardClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::reward
