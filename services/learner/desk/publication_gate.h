// Says whether new weights may go out, by what the held-out evaluation last said.
//
// A policy whose held-out reward has fallen under a fraction of the best one of its run has
// collapsed: what workers would sample with it is of no use to anyone. Its weights are withheld,
// and workers go on with the last good ones for as long as the staleness budget allows; then the
// run stops, for it would wait forever for groups that nobody may sample. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace oxbow::learner {

class PublicationGate {
 public:
  struct Options {
    double reward_floor = 0;  // Fraction of the best reward; 0: everything goes out.
    uint64_t staleness_max = 0;
    double best_reward = 0;  // Of the run before it was resumed.
  };

  explicit PublicationGate(Options options) : options_(options), best_(options.best_reward) {}

  // An evaluation of the weights as they are. The best counts from when it is above 0.
  void Evaluated(double reward);

  // Whether weights of `committed` learner steps may go out; if so they are taken as published. The
  // first always may: workers have no others. kFailedPrecondition if they may not and the last
  // published ones are too old to sample the next step with.
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
