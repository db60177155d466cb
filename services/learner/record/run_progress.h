// SPDX-License-Identifier: Apache-2.0
// The progress of the run, for status calls: phase, time by phase, numbers of the last step and of
// the last evaluation. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/learner/record/learner_metrics.h"

namespace oxbow::learner {

// Phases in words that others than this class say, too.
inline constexpr char kAwaitsRollouts[] = "waiting for rollouts";
inline constexpr char kAwaitsRewards[] = "waiting for rewards";
inline constexpr char kRewardCheck[] = "reward check";  // Failure.what of a wait before step 1.

inline constexpr size_t kNoticesMax = 20;

class RunProgress {
 public:
  // `committed` and `version`: those of the checkpoint that the run goes on from.
  RunProgress(const Clock& clock, LearnerMetrics& metrics, uint64_t steps_total,
              uint64_t committed = 0, uint64_t version = 0);

  // Ends the current phase and starts another: "wait", "update", ... (the names of PhaseTook).
  void Enter(const std::string& phase);

  // Seconds by phase since the last call, including the running phase up to now.
  std::map<std::string, double> TakeSeconds();

  // `metrics` replace those of the previous step; "eval/..." stay until there are new ones.
  void StepCommitted(uint64_t committed, uint64_t policy_version,
                     const std::map<std::string, double>& metrics);

  // Tells a person, in every status from here on. What is over kNoticesMax is only in the log.
  void Notice(const std::string& text);

  double wall_seconds() const;
  // A phase that has not ended counts in the shares of time.
  // If a worker in `response` waits for rewards, so does a learner that waits for rollouts.
  void FillStatus(v1::StatusResponse& response) const;

 private:
  void CloseLap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  LearnerMetrics& metrics_;
  const uint64_t steps_total_;
  const absl::Duration start_;
  mutable absl::Mutex mutex_;
  std::string phase_ ABSL_GUARDED_BY(mutex_) = "plan";
  absl::Duration since_ ABSL_GUARDED_BY(mutex_);
  absl::Duration step_at_ ABSL_GUARDED_BY(mutex_);             // Last commit; at first, the start.
  std::map<std::string, double> lap_ ABSL_GUARDED_BY(mutex_);  // Since TakeSeconds.
  std::map<std::string, double> share_
      ABSL_GUARDED_BY(mutex_);  // Seconds, decaying over about 20 steps.
  uint64_t committed_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, double> numbers_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> notices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::learner
