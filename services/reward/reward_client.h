// Asks reward servers for scores: replicas in turn, a deadline and a few tries per batch, never a
// made-up value.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "core/reward/picture.h"

namespace oxbow::reward {

using Scores = std::map<std::string, double>;  // By reward name.

class RewardClient {
 public:
  struct Options {
    std::vector<std::string> endpoints;
    std::vector<std::string> rewards;  // Names wanted; empty: all that the servers describe.
    int tries = 3;                     // Over replicas, for transport failures.
    absl::Duration timeout = absl::Seconds(30);  // Of one try of one batch.
    absl::Duration rest = absl::Seconds(5);      // A replica that failed is asked last for so long.
    const Clock* clock = &Clock::Steady();
  };

  // Asks every replica to describe itself. kUnavailable if none answers; kInvalidArgument if one
  // that answers lacks a wanted name, or no endpoint is given.
  static absl::StatusOr<std::unique_ptr<RewardClient>> Create(Options options);
  ~RewardClient();

  // One result per picture, in order: all wanted names, or why it could not be scored. Values are
  // finite: NaN from a server is an error of that picture. A batch whose call fails in transport
  // goes to the next replica, with what is still unanswered. Thread-safe.
  std::vector<absl::StatusOr<Scores>> Score(const std::string& prompt_text,
                                            const std::string& prompt_metadata_json,
                                            const std::vector<Picture>& pictures);

 private:
  struct Impl;
  explicit RewardClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::reward
