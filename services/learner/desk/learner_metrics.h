// What the learner counts, as verbs. Names, units and help stand in learner_metrics.cc alone.
#pragma once

#include <prometheus/registry.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace oxbow::learner {

// Thread-safe. Every counter's label values exist from the start, so that rates see zero; a gauge
// about the last step is there only when that step measured it.
class LearnerMetrics {
 public:
  // `rewards`: every reward name of the run.
  LearnerMetrics(prometheus::Registry& registry, const std::vector<std::string>& rewards);
  ~LearnerMetrics();

  // Leases and results.
  void LeaseGranted();
  void LeaseExpired();
  void LeaseFailed();
  void LeaseSpeculated();  // A straggler's group was leased a second time.
  void LeaseSuperseded();  // Ended because the group's other lease was first.
  void ResultReceived(const std::string& outcome,
                      uint64_t bytes);  // accepted | duplicate | fenced | superseded | invalid
  void GroupsAre(uint64_t pending, uint64_t running, uint64_t ready);
  void SinkHolds(uint64_t bytes);
  void WorkersAre(uint64_t connected, uint64_t weights_lag_max);  // Lag in policy versions.

  // Steps. `metrics` is named as in metrics.jsonl; what has a gauge here is copied to it, and
  // gauges of what is not in it go away, but for evaluations: not every step has one.
  void StepCommitted(double seconds, const std::map<std::string, double>& metrics);
  void PhaseTook(const std::string& phase, double seconds);
  void SampleConsumed(uint64_t staleness_steps, bool replayed);
  void StalenessBudgetIs(uint64_t steps);
  void VersionIs(uint64_t policy_version, uint64_t published_version);

  // Replay buffer.
  void BufferAttached(bool attached);
  void BufferFailed(const std::string& call);  // draw | read | commit | checkpoint | restore
  void BufferCommitsDropped();
  void OfferAnswered(const std::string& outcome);
  void HeadMissing();
  void HeadRefused(const std::string& reason);  // schedule | no_density | window | size

  void EvaluationFailed();
  void CheckpointWritten(uint64_t bytes);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::learner
