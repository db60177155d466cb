// SPDX-License-Identifier: Apache-2.0
// Events of leases and results: each is a metric, a line of the log and a count. Beside them, the
// trouble that the run last met, and prompts that cannot be scored.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/trace.h"
#include "core/lease/lease_table.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/learner/record/learner_metrics.h"

namespace oxbow::learner {

enum class LeaseEvent {
  kGranted,
  kSpeculated,  // Granted for the second time, since the first is a straggler.
  kExpired,
  kFailed,
  kSuperseded,  // The group's other lease was first.
};

// Prompts with images to which a reward server answers without a score.
//
// Noise is a function of the group, so a group that fails for such an image fails again. With
// reward.on_failure `fail` its prompt is quarantined after a few failures: the group is then leased
// as one that drops its unscored samples. Whether a prompt is in quarantine changes only how often
// a group is made until then, never which samples are dropped; so a run stays a function of its
// seed, and a restarted learner need not remember the list. Not thread-safe.
class Quarantine {
 public:
  static constexpr uint32_t kFailuresMax = 2;  // After these of one group, its prompt is in.
  static constexpr size_t kListed = 100;       // Prompts that a status lists.

  // A group failed because of images without a score. True if this quarantines its prompt.
  bool Failed(GroupId group, LearnerStep step, const v1::Prompt& prompt, const std::string& reason);

  // All samples of a group of this prompt have scores: the prompt leaves the quarantine.
  void Scored(PromptId prompt) { prompts_.erase(prompt.value); }

  bool Holds(PromptId prompt) const { return prompts_.contains(prompt.value); }
  // Failures of this kind of one group.
  uint32_t failures(GroupId group) const;
  // Forgets the failures of groups below `group`.
  void Forget(GroupId group) {
    failures_.erase(failures_.begin(), failures_.lower_bound(group.value));
  }

  size_t size() const { return prompts_.size(); }
  void FillStatus(v1::StatusResponse& response) const;

 private:
  std::map<uint64_t, uint32_t> failures_;              // By group.
  std::map<uint64_t, v1::QuarantinedPrompt> prompts_;  // By prompt.
};

// Thread-safe.
class LeaseEvents {
 public:
  // `run_id`: this start of the learner. It names the traces of groups.
  LeaseEvents(std::string run_id, const Clock& clock, LearnerMetrics& metrics)
      : run_id_(std::move(run_id)), clock_(clock), metrics_(metrics) {}

  void Note(LeaseEvent event, const lease::LeaseGrant& grant, const std::string& reason = "");
  Trace TraceOf(const lease::LeaseGrant& grant) const {
    return TraceOfGroup(run_id_, grant.group, grant.id);
  }
  // A result was refused, or its worker could not deliver it: work was thrown away.
  void Discarded() { ++discarded_; }
  // An accepted group came without these samples: no reward server has a score.
  void Dropped(uint64_t samples) {
    unscored_ += samples;
    metrics_.SamplesUnscored(samples);
  }

  // Notes trouble for `oxbow status`. `what`: "group", "image", "evaluation", "disk". `no_score`:
  // it is that a reward server has no score for a sample.
  void NoteFailure(const std::string& what, const std::string& reason, bool no_score = false);
  // A step was committed: the next failure begins another series.
  void StepCommitted() {
    absl::MutexLock lock(&mutex_);
    series_ended_ = true;
  }
  // Why a sample last had no score; empty if none was without.
  std::string unscored_reason() const {
    absl::MutexLock lock(&mutex_);
    return unscored_reason_;
  }

  void FillStatus(v1::StatusResponse& response) const;
  // The counts as numbers of a step, as in metrics.jsonl.
  void AddCounts(std::map<std::string, double>& numbers) const;

 private:
  uint64_t CountOf(LeaseEvent event) const { return counts_[static_cast<size_t>(event)]; }

  const std::string run_id_;
  const Clock& clock_;
  LearnerMetrics& metrics_;
  // Since this start of the learner.
  std::atomic<uint64_t> counts_[static_cast<size_t>(LeaseEvent::kSuperseded) + 1] = {};
  std::atomic<uint64_t> discarded_ = 0;  // Groups.
  std::atomic<uint64_t> unscored_ = 0;   // Samples.
  mutable absl::Mutex mutex_;
  v1::Failure failures_ ABSL_GUARDED_BY(mutex_);  // The last; its times are those of the clock.
  bool series_ended_ ABSL_GUARDED_BY(mutex_) = true;
  std::string unscored_reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::learner
