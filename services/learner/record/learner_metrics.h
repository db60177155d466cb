// SPDX-License-Identifier: Apache-2.0
// Metrics of the learner, as verbs. Names and help are in metrics/exported_metrics.h.
#pragma once

#include <prometheus/registry.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace oxbow::learner {

// Counters exist with all their label values from the start, so that rates begin at zero. All of
// this is thread-safe.

// Leases, results, and the workers that have them.
class WorkMetrics {
 public:
  explicit WorkMetrics(prometheus::Registry& registry);
  ~WorkMetrics();

  void LeaseGranted();
  void LeaseExpired();
  void LeaseFailed();
  void LeaseSpeculated();  // A straggler's group was leased a second time.
  void LeaseSuperseded();  // Ended because the group's other lease was first.
  void WorkerRefused();    // Another process of its name is connected.
  void WorkerRests();      // Its leases failed one after another.
  void WorkerCutOff();     // It does not read what it is told.
  void ResultReceived(const std::string& outcome,
                      uint64_t bytes);  // accepted | duplicate | fenced | superseded | invalid
  void GroupsAre(uint64_t pending, uint64_t running, uint64_t ready);
  void SinkHolds(uint64_t bytes);
  // Lag in policy versions; `waiting` for a reward server; `bad` fail one lease after another.
  void WorkersAre(uint64_t connected, uint64_t weights_lag_max, uint64_t waiting, uint64_t bad);
  void SamplesUnscored(uint64_t count);
  void PromptsQuarantined(uint64_t count);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// These, and what becomes of the results.
class LearnerMetrics : public WorkMetrics {
 public:
  explicit LearnerMetrics(prometheus::Registry& registry);
  ~LearnerMetrics();

  // Steps. `metrics` has the keys of metrics.jsonl. Each number is oxbow_step{key} until the next
  // step; numbers of an evaluation stay until the next evaluation.
  void StepCommitted(double seconds, const std::map<std::string, double>& metrics);
  void PhaseTook(const std::string& phase, double seconds);
  void StepTrainedNothing(const std::string& reason);  // no_signal | no_rows
  void SampleConsumed(uint64_t staleness_steps, bool replayed);
  void StalenessBudgetIs(uint64_t steps);
  void PolicyVersionIs(uint64_t version);     // After each step's updates.
  void RunComplete();                         // No step follows.
  void PublishedVersionIs(uint64_t version);  // The newest that workers can get.

  // Replay buffer.
  void BufferAttached(bool attached);
  void BufferFailed(const std::string& call);  // draw | read | commit | checkpoint | restore
  void BufferOverran();                        // A step's time for it was used up.
  void BufferCommitsDropped();
  void OfferAnswered(const std::string& outcome);
  void HeadMissing();
  void HeadRefused(const std::string& reason);  // schedule | no_density | size

  void EvaluationFailed();
  void CheckpointWritten(uint64_t bytes, double seconds);
  void CheckpointCopied(bool copied);
  void WriteFailed(const std::string& what);  // checkpoint | metrics | prompts | ...

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::learner
