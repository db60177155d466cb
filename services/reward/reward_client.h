// Asks reward servers for scores: replicas in turn, a deadline and a few tries per batch, never a made-up value.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::reward {

// 8-bit picture, interleaved channels, rows top to bottom.
struct Picture {
  uint32_t width = 0;
  uint32_t height = 0;
  uint32_t channels = 1;
  std::string pixels;
};

using Scores = std::map<std::string, double>;  // By reward name.

class RewardClient {
 public:
  struct Options {
    std::vector<std::string> endpoints;
    std::vector<std::string> rewards;  // Names wanted; all must be described by the servers.
    int tries = 3;                     // Over replicas, for transport failures.
    absl::Duration timeout = absl::Seconds(30);
  };

  // Checks that some replica answers Describe and knows every name. kUnavailable or kInvalidArgument.
  static absl::StatusOr<std::unique_ptr<RewardClient>> Create(Options options);
  ~RewardClient();

  // One result per picture, in order: all wanted names, or why it could not be scored. Values are
  // finite: NaN from a server is an error of that picture. Thread-safe.
  std::vector<absl::StatusOr<Scores>> Score(const std::string& prompt_text,
                                            const std::string& prompt_metadata_json,
                                            const std::vector<Picture>& pictures);

 private:
  struct Impl;
  explicit RewardClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::reward
