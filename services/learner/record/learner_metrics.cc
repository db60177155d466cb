// SPDX-License-Identifier: Apache-2.0
#include "services/learner/record/learner_metrics.h"

#include <algorithm>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "metrics/step_metrics.h"
#include "telemetry/metrics.h"

namespace oxbow::learner {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;
using telemetry::Counters;
using telemetry::Metric;

void Set(Gauge& gauge, uint64_t number) { gauge.Set(static_cast<double>(number)); }
void Add(Counter& counter, uint64_t number) { counter.Increment(static_cast<double>(number)); }

const telemetry::Buckets kStepSeconds = {.05, .1, .15, .2, .25, .35, .5, 1,
                                         2.5, 5,  10,  20, 40,  80,  160};
const telemetry::Buckets kStalenessSteps = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32};

}  // namespace

struct WorkMetrics::Impl {
  explicit Impl(Registry& registry) : r(registry) {}

  Registry& r;
  Counters leases{r,
                  exported::kLearnerLeasesTotal,
                  "event",
                  {"granted", "expired", "failed", "speculated", "superseded"}};
  Counters results{r,
                   exported::kLearnerResultsTotal,
                   "outcome",
                   {"accepted", "duplicate", "fenced", "superseded", "invalid"}};
  Counter& result_bytes = Metric(r, exported::kLearnerResultBytesTotal);
  Gauge& pending = Metric(r, exported::kLearnerGroups, {{"state", "pending"}});
  Gauge& running = Metric(r, exported::kLearnerGroups, {{"state", "running"}});
  Gauge& ready = Metric(r, exported::kLearnerGroups, {{"state", "ready"}});
  Gauge& sink_bytes = Metric(r, exported::kLearnerSinkBytes);
  Gauge& workers = Metric(r, exported::kLearnerWorkers);
  Counter& duplicate_workers = Metric(r, exported::kLearnerDuplicateWorkersTotal);
  Counter& worker_rests = Metric(r, exported::kLearnerWorkerRestsTotal);
  Counter& streams_cut = Metric(r, exported::kLearnerStreamsCutTotal);
  Gauge& workers_bad = Metric(r, exported::kLearnerWorkersBad);
  Gauge& workers_waiting = Metric(r, exported::kLearnerWorkersWaiting);
  Counter& samples_unscored = Metric(r, exported::kLearnerUnscoredSamplesTotal);
  Gauge& quarantined = Metric(r, exported::kLearnerPromptsQuarantined);
  Gauge& weights_lag = Metric(r, exported::kLearnerWeightsLagVersions);
};

struct LearnerMetrics::Impl {
  explicit Impl(Registry& registry) : r(registry) {}

  Registry& r;
  Gauge& complete = Metric(r, exported::kLearnerComplete);
  Gauge& version = Metric(r, exported::kLearnerPolicyVersion);
  Gauge& published = Metric(r, exported::kLearnerPublishedVersion);
  Histogram& step_seconds = Metric(r, exported::kLearnerStepDurationSeconds, kStepSeconds);
  Counters phase_seconds{
      r,
      exported::kLearnerPhaseSecondsTotal,
      "phase",
      {"plan", "wait", "rewards", "update", "publish", "offer", "eval", "checkpoint", "log"}};
  Counters idle_steps{
      r, exported::kLearnerStepsWithoutSamplesTotal, "reason", {"no_signal", "no_rows"}};
  Histogram& staleness = Metric(r, exported::kLearnerSampleStalenessSteps, kStalenessSteps);
  Gauge& staleness_budget = Metric(r, exported::kLearnerStalenessBudgetSteps);
  Counters samples{r, exported::kLearnerSamplesTotal, "origin", {"fresh", "replay"}};
  Gauge& buffer_attached = Metric(r, exported::kLearnerBufferAttached);
  Counters buffer_failures{r,
                           exported::kLearnerBufferFailuresTotal,
                           "call",
                           {"draw", "read", "commit", "checkpoint", "restore"}};
  Counter& buffer_overruns = Metric(r, exported::kLearnerBufferOverrunsTotal);
  Counter& commits_dropped = Metric(r, exported::kLearnerBufferCommitsDroppedTotal);
  Counters offers{r,
                  exported::kLearnerOffersTotal,
                  "outcome",
                  {"inserted", "replaced", "rejected_lower", "duplicate", "rejected_invalid"}};
  Counter& heads_missing = Metric(r, exported::kLearnerHeadsMissingTotal);
  Counters heads_refused{
      r, exported::kLearnerHeadsRefusedTotal, "reason", {"schedule", "no_density", "size"}};
  Counter& evaluation_failures = Metric(r, exported::kLearnerEvaluationFailuresTotal);
  Counter& checkpoints = Metric(r, exported::kLearnerCheckpointsTotal);
  Counters write_failures{r,
                          exported::kLearnerWriteFailuresTotal,
                          "what",
                          {"checkpoint", "metrics", "prompts", "samples", "steps", "weights"}};
  Counters checkpoint_copies{
      r, exported::kLearnerCheckpointCopiesTotal, "outcome", {"copied", "failed"}};
  Gauge& checkpoint_bytes = Metric(r, exported::kLearnerCheckpointBytes);
  Gauge& checkpoint_seconds = Metric(r, exported::kLearnerCheckpointWriteSeconds);
  prometheus::Family<Gauge>& step = telemetry::Family(r, exported::kStep);
  absl::Mutex mutex;
  std::map<std::string, Gauge*> numbers ABSL_GUARDED_BY(mutex);  // Gauges of `step` by key.
};

WorkMetrics::WorkMetrics(Registry& registry) : impl_(std::make_unique<Impl>(registry)) {}
WorkMetrics::~WorkMetrics() = default;

void WorkMetrics::LeaseGranted() { impl_->leases.Add("granted"); }
void WorkMetrics::WorkerRefused() { impl_->duplicate_workers.Increment(); }
void WorkMetrics::WorkerRests() { impl_->worker_rests.Increment(); }
void WorkMetrics::WorkerCutOff() { impl_->streams_cut.Increment(); }
void WorkMetrics::LeaseExpired() { impl_->leases.Add("expired"); }
void WorkMetrics::LeaseFailed() { impl_->leases.Add("failed"); }
void WorkMetrics::LeaseSpeculated() { impl_->leases.Add("speculated"); }
void WorkMetrics::LeaseSuperseded() { impl_->leases.Add("superseded"); }

void WorkMetrics::ResultReceived(const std::string& outcome, uint64_t bytes) {
  impl_->results.Add(outcome);
  Add(impl_->result_bytes, bytes);
}

void WorkMetrics::GroupsAre(uint64_t pending, uint64_t running, uint64_t ready) {
  Set(impl_->pending, pending);
  Set(impl_->running, running);
  Set(impl_->ready, ready);
}

void WorkMetrics::SinkHolds(uint64_t bytes) { Set(impl_->sink_bytes, bytes); }

void WorkMetrics::WorkersAre(uint64_t connected, uint64_t weights_lag_max, uint64_t waiting,
                             uint64_t bad) {
  Set(impl_->workers, connected);
  Set(impl_->weights_lag, weights_lag_max);
  Set(impl_->workers_waiting, waiting);
  Set(impl_->workers_bad, bad);
}

void WorkMetrics::SamplesUnscored(uint64_t count) { Add(impl_->samples_unscored, count); }
void WorkMetrics::PromptsQuarantined(uint64_t count) { Set(impl_->quarantined, count); }

LearnerMetrics::LearnerMetrics(Registry& registry)
    : WorkMetrics(registry), impl_(std::make_unique<Impl>(registry)) {}
LearnerMetrics::~LearnerMetrics() = default;

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

void LearnerMetrics::StalenessBudgetIs(uint64_t steps) { Set(impl_->staleness_budget, steps); }
void LearnerMetrics::PolicyVersionIs(uint64_t version) { Set(impl_->version, version); }

void LearnerMetrics::RunComplete() { impl_->complete.Set(1); }
void LearnerMetrics::PublishedVersionIs(uint64_t version) { Set(impl_->published, version); }

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
  Set(impl_->checkpoint_bytes, bytes);
  impl_->checkpoint_seconds.Set(seconds);
}

}  // namespace oxbow::learner
