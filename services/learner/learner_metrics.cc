// SPDX-License-Identifier: Apache-2.0
#include "services/learner/learner_metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "metrics/step_metrics.h"
#include "telemetry/families.h"

namespace oxbow::learner {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;
using telemetry::Metric;

// One counter for each value of a label, all made at once.
class Counters {
 public:
  Counters(Registry& registry, const exported::Counter& row, const char* label,
           const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      children_[value] = &Metric(registry, row, {{label, value}});
    }
  }
  void Add(const std::string& value, double by = 1) const {
    if (const auto found = children_.find(value); found != children_.end())
      found->second->Increment(by);
  }

 private:
  std::map<std::string, Counter*> children_;
};

const telemetry::Buckets kStepSeconds = {.05, .1, .15, .2, .25, .35, .5, 1,
                                         2.5, 5,  10,  20, 40,  80,  160};
const telemetry::Buckets kStalenessSteps = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32};

}  // namespace

struct LearnerMetrics::Impl {
  explicit Impl(Registry& r)
      : leases(r, exported::kLearnerLeasesTotal, "event",
               {"granted", "expired", "failed", "speculated", "superseded"}),
        results(r, exported::kLearnerResultsTotal, "outcome",
                {"accepted", "duplicate", "fenced", "superseded", "invalid"}),
        result_bytes(Metric(r, exported::kLearnerResultBytesTotal)),
        pending(Metric(r, exported::kLearnerGroups, {{"state", "pending"}})),
        running(Metric(r, exported::kLearnerGroups, {{"state", "running"}})),
        ready(Metric(r, exported::kLearnerGroups, {{"state", "ready"}})),
        sink_bytes(Metric(r, exported::kLearnerSinkBytes)),
        workers(Metric(r, exported::kLearnerWorkers)),
        duplicate_workers(Metric(r, exported::kLearnerDuplicateWorkersTotal)),
        worker_rests(Metric(r, exported::kLearnerWorkerRestsTotal)),
        streams_cut(Metric(r, exported::kLearnerStreamsCutTotal)),
        workers_bad(Metric(r, exported::kLearnerWorkersBad)),
        workers_waiting(Metric(r, exported::kLearnerWorkersWaiting)),
        samples_unscored(Metric(r, exported::kLearnerUnscoredSamplesTotal)),
        quarantined(Metric(r, exported::kLearnerPromptsQuarantined)),
        weights_lag(Metric(r, exported::kLearnerWeightsLagVersions)),
        complete(Metric(r, exported::kLearnerComplete)),
        version(Metric(r, exported::kLearnerPolicyVersion)),
        published(Metric(r, exported::kLearnerPublishedVersion)),
        step_seconds(Metric(r, exported::kLearnerStepDurationSeconds, kStepSeconds)),
        phase_seconds(
            r, exported::kLearnerPhaseSecondsTotal, "phase",
            {"plan", "wait", "rewards", "update", "publish", "offer", "eval", "checkpoint", "log"}),
        idle_steps(r, exported::kLearnerStepsWithoutSamplesTotal, "reason",
                   {"no_signal", "no_rows"}),
        staleness(Metric(r, exported::kLearnerSampleStalenessSteps, kStalenessSteps)),
        staleness_budget(Metric(r, exported::kLearnerStalenessBudgetSteps)),
        samples(r, exported::kLearnerSamplesTotal, "origin", {"fresh", "replay"}),
        buffer_attached(Metric(r, exported::kLearnerBufferAttached)),
        buffer_failures(r, exported::kLearnerBufferFailuresTotal, "call",
                        {"draw", "read", "commit", "checkpoint", "restore"}),
        buffer_overruns(Metric(r, exported::kLearnerBufferOverrunsTotal)),
        commits_dropped(Metric(r, exported::kLearnerBufferCommitsDroppedTotal)),
        offers(r, exported::kLearnerOffersTotal, "outcome",
               {"inserted", "replaced", "rejected_lower", "duplicate", "rejected_invalid"}),
        heads_missing(Metric(r, exported::kLearnerHeadsMissingTotal)),
        heads_refused(r, exported::kLearnerHeadsRefusedTotal, "reason",
                      {"schedule", "no_density", "size"}),
        evaluation_failures(Metric(r, exported::kLearnerEvaluationFailuresTotal)),
        checkpoints(Metric(r, exported::kLearnerCheckpointsTotal)),
        write_failures(r, exported::kLearnerWriteFailuresTotal, "what",
                       {"checkpoint", "metrics", "prompts", "samples", "steps", "weights"}),
        checkpoint_copies(r, exported::kLearnerCheckpointCopiesTotal, "outcome",
                          {"copied", "failed"}),
        checkpoint_bytes(Metric(r, exported::kLearnerCheckpointBytes)),
        checkpoint_seconds(Metric(r, exported::kLearnerCheckpointWriteSeconds)),
        step(telemetry::Family(r, exported::kStep)) {}

  Counters leases;
  Counters results;
  Counter& result_bytes;
  Gauge& pending;
  Gauge& running;
  Gauge& ready;
  Gauge& sink_bytes;
  Gauge& workers;
  Counter& duplicate_workers;
  Counter& worker_rests;
  Counter& streams_cut;
  Gauge& workers_bad;
  Gauge& workers_waiting;
  Counter& samples_unscored;
  Gauge& quarantined;
  Gauge& weights_lag;
  Gauge& complete;
  Gauge& version;
  Gauge& published;
  Histogram& step_seconds;
  Counters phase_seconds;
  Counters idle_steps;
  Histogram& staleness;
  Gauge& staleness_budget;
  Counters samples;
  Gauge& buffer_attached;
  Counters buffer_failures;
  Counter& buffer_overruns;
  Counter& commits_dropped;
  Counters offers;
  Counter& heads_missing;
  Counters heads_refused;
  Counter& evaluation_failures;
  Counter& checkpoints;
  Counters write_failures;
  Counters checkpoint_copies;
  Gauge& checkpoint_bytes;
  Gauge& checkpoint_seconds;
  prometheus::Family<Gauge>& step;
  absl::Mutex mutex;
  std::map<std::string, Gauge*> numbers ABSL_GUARDED_BY(mutex);  // Gauges of `step` by key.
};

LearnerMetrics::LearnerMetrics(Registry& registry) : impl_(std::make_unique<Impl>(registry)) {}
LearnerMetrics::~LearnerMetrics() = default;

void LearnerMetrics::LeaseGranted() { impl_->leases.Add("granted"); }
void LearnerMetrics::WorkerRefused() { impl_->duplicate_workers.Increment(); }
void LearnerMetrics::WorkerRests() { impl_->worker_rests.Increment(); }
void LearnerMetrics::WorkerCutOff() { impl_->streams_cut.Increment(); }
void LearnerMetrics::LeaseExpired() { impl_->leases.Add("expired"); }
void LearnerMetrics::LeaseFailed() { impl_->leases.Add("failed"); }
void LearnerMetrics::LeaseSpeculated() { impl_->leases.Add("speculated"); }
void LearnerMetrics::LeaseSuperseded() { impl_->leases.Add("superseded"); }

void LearnerMetrics::ResultReceived(const std::string& outcome, uint64_t bytes) {
  impl_->results.Add(outcome);
  impl_->result_bytes.Increment(static_cast<double>(bytes));
}

void LearnerMetrics::GroupsAre(uint64_t pending, uint64_t running, uint64_t ready) {
  impl_->pending.Set(static_cast<double>(pending));
  impl_->running.Set(static_cast<double>(running));
  impl_->ready.Set(static_cast<double>(ready));
}

void LearnerMetrics::SinkHolds(uint64_t bytes) {
  impl_->sink_bytes.Set(static_cast<double>(bytes));
}

void LearnerMetrics::WorkersAre(uint64_t connected, uint64_t weights_lag_max, uint64_t waiting,
                                uint64_t bad) {
  impl_->workers.Set(static_cast<double>(connected));
  impl_->weights_lag.Set(static_cast<double>(weights_lag_max));
  impl_->workers_waiting.Set(static_cast<double>(waiting));
  impl_->workers_bad.Set(static_cast<double>(bad));
}

void LearnerMetrics::SamplesUnscored(uint64_t count) {
  impl_->samples_unscored.Increment(static_cast<double>(count));
}

void LearnerMetrics::PromptsQuarantined(uint64_t count) {
  impl_->quarantined.Set(static_cast<double>(count));
}

void LearnerMetrics::StepCommitted(double seconds, const std::map<std::string, double>& metrics) {
  impl_->step_seconds.Observe(seconds);
  absl::MutexLock lock(&impl_->mutex);
  const bool evaluated = std::any_of(metrics.begin(), metrics.end(), [](const auto& number) {
    return metric::IsOfEvaluation(number.first);
  });
  std::erase_if(impl_->numbers, [&](const auto& number) {
    const auto& [key, gauge] = number;
    if (metrics.contains(key) || (!evaluated && metric::IsOfEvaluation(key))) return false;
    impl_->step.Remove(gauge);
    return true;
  });
  for (const auto& [key, value] : metrics) {
    Gauge*& gauge = impl_->numbers[key];
    if (gauge == nullptr) gauge = &impl_->step.Add({{"key", key}});
    gauge->Set(value);
  }
}

void LearnerMetrics::PhaseTook(const std::string& phase, double seconds) {
  impl_->phase_seconds.Add(phase, seconds);
}

void LearnerMetrics::StepTrainedNothing(const std::string& reason) {
  impl_->idle_steps.Add(reason);
}

void LearnerMetrics::SampleConsumed(uint64_t staleness_steps, bool replayed) {
  impl_->samples.Add(replayed ? "replay" : "fresh");
  if (!replayed) impl_->staleness.Observe(static_cast<double>(staleness_steps));
}

void LearnerMetrics::StalenessBudgetIs(uint64_t steps) {
  impl_->staleness_budget.Set(static_cast<double>(steps));
}

void LearnerMetrics::PolicyVersionIs(uint64_t version) {
  impl_->version.Set(static_cast<double>(version));
}

void LearnerMetrics::RunComplete() { impl_->complete.Set(1); }

void LearnerMetrics::PublishedVersionIs(uint64_t version) {
  impl_->published.Set(static_cast<double>(version));
}

void LearnerMetrics::BufferAttached(bool attached) { impl_->buffer_attached.Set(attached ? 1 : 0); }
void LearnerMetrics::BufferFailed(const std::string& call) { impl_->buffer_failures.Add(call); }
void LearnerMetrics::BufferOverran() { impl_->buffer_overruns.Increment(); }
void LearnerMetrics::BufferCommitsDropped() { impl_->commits_dropped.Increment(); }
void LearnerMetrics::OfferAnswered(const std::string& outcome) { impl_->offers.Add(outcome); }
void LearnerMetrics::HeadMissing() { impl_->heads_missing.Increment(); }
void LearnerMetrics::HeadRefused(const std::string& reason) { impl_->heads_refused.Add(reason); }
void LearnerMetrics::EvaluationFailed() { impl_->evaluation_failures.Increment(); }

void LearnerMetrics::WriteFailed(const std::string& what) { impl_->write_failures.Add(what); }

void LearnerMetrics::CheckpointCopied(bool copied) {
  impl_->checkpoint_copies.Add(copied ? "copied" : "failed");
}

void LearnerMetrics::CheckpointWritten(uint64_t bytes, double seconds) {
  impl_->checkpoints.Increment();
  impl_->checkpoint_bytes.Set(static_cast<double>(bytes));
  impl_->checkpoint_seconds.Set(seconds);
}

}  // namespace oxbow::learner
