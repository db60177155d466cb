// SPDX-License-Identifier: Apache-2.0
// Decides from the last held-out evaluation whether new weights may be published.
//
// A policy whose held-out reward falls below a fraction of the best one of its run has collapsed,
// and its samples would be useless. Its weights are withheld. Workers continue with the last good
// weights for as long as the staleness budget allows. Then the run stops, because it would wait
// forever for groups that no worker may sample. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace oxbow::learner {

class PublicationGate {
 public:
  struct Options {
    double reward_floor = 0;  // Fraction of the best reward; 0: publish always.
    uint64_t staleness_max = 0;
    double best_reward = 0;  // Best reward before the run was resumed.
  };

  explicit PublicationGate(Options options) : options_(options), best_(options.best_reward) {}

  // Records an evaluation of the current weights. Rewards count as the best only if they are above
  // 0.
  void Evaluated(double reward);

  // Whether weights after `committed` learner steps may be published; if so they count as
  // published. The first ones always may: workers have no others. kFailedPrecondition if they may
  // not and the last published ones are too old to sample the next step.
  absl::StatusOr<bool> Admit(LearnerStep committed);

  double best_reward() const { return best_; }

 private:
  bool collapsed() const;

  const Options options_;
  double best_;
  std::optional<double> last_;
  std::optional<LearnerStep> published_;
};

}  // namespace oxbow::learner
