// SPDX-License-Identifier: Apache-2.0
// The training loop without services: the same model, noise, groups, rewards and updates in one
// process and one thread. Benchmarks measure the cost of the services against it, and tests compare
// its results with theirs bit for bit.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/image8.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::bench {

// Runs on-policy without replay: replay.fraction 0, publish_every 1, staleness_max 0.
class SingleProcessLoop {
 public:
  // `config` is resolved. kInvalidArgument if it asks for a feature that this loop does not have.
  static absl::StatusOr<std::unique_ptr<SingleProcessLoop>> Create(const v1::RunConfig& config);
  ~SingleProcessLoop();

  // One learner step. Returns its metrics, named as in metrics.jsonl.
  absl::StatusOr<std::map<std::string, double>> Step();

  // The first `count` held-out pictures of the weights as they are now, or of their average, as one
  // batch; at most one a prompt.
  absl::StatusOr<std::vector<std::vector<Image8>>> DrawHeldOut(size_t count);

 private:
  struct Impl;
  explicit SingleProcessLoop(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::bench
