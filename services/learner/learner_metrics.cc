// SPDX-License-Identifier: Apache-2.0
#include "services/learner/learner_metrics.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "metrics/step_metrics.h"
#include "telemetry/families.h"

namespace oxbow::learner {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::Registry;
using telemetry::Metric;

// A number of the last committed step that is also on /metrics.
struct GaugeOfStep {
  std::string key;  // In metrics.jsonl.
  exported::Gauge gauge;
  Labels labels = {};
};

std::vector<GaugeOfStep> GaugesOfStep(const std::vector<std::string>& rewards) {
  std::vector<GaugeOfStep> table = {
      {metric::kTrainIwMean, exported::kLearnerSequenceWeightMean},
      {metric::kTrainIwMin, exported::kLearnerSequenceWeightMin},
      {metric::kTrainIwEss, exported::kLearnerSequenceWeightEss},
      {metric::kTrainOnpolicyRatioErr, exported::kLearnerOnpolicyRatioError},
      {metric::kTrainOnpolicyRatioLimit, exported::kLearnerOnpolicyRatioLimit},
      {metric::kTrainGradNorm, exported::kLearnerGradNorm},
      {metric::kTrainLoss, exported::kLearnerLoss},
      {metric::kTrainKlLoss, exported::kLearnerKlLoss},
      {metric::kTrainKlDiv, exported::kLearnerKlDivergence},
      {metric::kTrainAnchorDiv, exported::kLearnerAnchorDivergence},
      {metric::kTrainGroupDistanceMean, exported::kLearnerGroupDistance},
      {metric::kTrainDuplicateShareMean, exported::kLearnerDuplicateShare},
      {metric::kEvalSpeckleMean, exported::kLearnerEvalSpeckle},
      {metric::kEvalSaturatedShare, exported::kLearnerEvalSaturatedShare},
      {metric::kEvalFineDetail, exported::kLearnerEvalFineDetail},
      {metric::kEvalSharpness, exported::kLearnerEvalSharpness},
      {metric::kEvalBaseDistance, exported::kLearnerEvalBaseDistance},
      {metric::kTrainApproxKl, exported::kLearnerApproxKl},
      {metric::kTrainUpdateNorm, exported::kLearnerUpdateNorm},
      {metric::kTrainBaseDistance, exported::kLearnerBaseDistance},
      {metric::kTrainAdvAbsMean, exported::kLearnerAdvantageAbsMean},
      {metric::kTrainLr, exported::kLearnerLearningRate},
      {metric::kTrainCommunicationS, exported::kLearnerCommunicationSeconds},
      {metric::kTrainCommunicationExposedS, exported::kLearnerCommunicationExposedSeconds},
      {metric::kTrainRewardZeroStdRatio, exported::kLearnerZeroStdGroupRatio},
      {metric::kEvalRewardMean, exported::kLearnerEvalRewardMean},
      {metric::kBufferSize, exported::kLearnerBufferEntries},
      {metric::kBufferStalenessMean, exported::kLearnerReplayAgeSteps},
      {metric::kThroughputSamplesPerS, exported::kLearnerSamplesPerSecond},
      {metric::kTrainRewardMean, exported::kLearnerReward, {{"reward", "weighted_sum"}}},
  };
  for (const std::string& reward : rewards) {
    const Labels labels = {{"reward", reward}};
    table.push_back({metric::kEvalRewardNameMean.Of(reward), exported::kLearnerEvalReward, labels});
    table.push_back({metric::kTrainRewardNameMean.Of(reward), exported::kLearnerReward, labels});
  }
  // The trainer measures each side over all origins, and each origin over all sides.
  const auto add_clip = [&](const metric::StepMetric& key, const char* origin, const char* side) {
    table.push_back({key, exported::kLearnerClipRatio, {{"origin", origin}, {"side", side}}});
  };
  add_clip(metric::kTrainClipFracHigh, "all", "upper");
  add_clip(metric::kTrainClipFracLow, "all", "lower");
  add_clip(metric::kTrainClipFracZeroGrad, "all", "zero_gradient");
  add_clip(metric::kTrainClipFracTotal, "all", "any");
  add_clip(metric::kTrainClipFracFresh, "fresh", "any");
  add_clip(metric::kTrainClipFracStale, "stale", "any");
  add_clip(metric::kTrainClipFracReplay, "replay", "any");
  return table;
}

// The gauge of one denoising step's clip fraction; nothing if the key is another one.
std::optional<GaugeOfStep> GaugeOfStepClip(const std::string& key) {
  const auto step = metric::kTrainClipFracStepN.ValueIn(key);
  if (!step.has_value()) return std::nullopt;
  return GaugeOfStep{
      key, exported::kLearnerStepClipRatio, {{"denoising_step", std::string(*step)}}};
}

// A gauge that is on the page only while its number is measured.
class SometimesGauge {
 public:
  SometimesGauge(Registry& registry, const GaugeOfStep& row)
      : family_(&telemetry::Family(registry, row.gauge)),
        labels_(row.labels),
        lasts_(metric::IsOfEvaluation(row.key)) {}

  void Set(double value) {
    if (gauge_ == nullptr) gauge_ = &family_->Add(labels_);
    gauge_->Set(value);
  }
  void NotMeasured() {
    if (gauge_ == nullptr || lasts_) return;
    family_->Remove(gauge_);
    gauge_ = nullptr;
  }

 private:
  prometheus::Family<Gauge>* family_;
  Labels labels_;
  bool lasts_;
  Gauge* gauge_ = nullptr;
};

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
  Impl(Registry& r, const std::vector<std::string>& rewards)
      : registry(r),
        leases(r, exported::kLearnerLeasesTotal, "event",
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
        checkpoint_seconds(Metric(r, exported::kLearnerCheckpointWriteSeconds)) {
    for (const GaugeOfStep& row : GaugesOfStep(rewards)) {
      step_gauges.emplace(row.key, SometimesGauge(r, row));
    }
  }

  Registry& registry;
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
  absl::Mutex mutex;
  std::map<std::string, SometimesGauge> step_gauges ABSL_GUARDED_BY(mutex);  // By key.
};

LearnerMetrics::LearnerMetrics(Registry& registry, const std::vector<std::string>& rewards)
    : impl_(std::make_unique<Impl>(registry, rewards)) {}
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
  // The denoising steps that are trained are known only once a step has trained them.
  const std::string first(metric::kTrainClipFracStepN.before);
  for (auto at = metrics.lower_bound(first); at != metrics.end(); ++at) {
    const std::optional<GaugeOfStep> row = GaugeOfStepClip(at->first);
    if (!row.has_value()) break;
    impl_->step_gauges.emplace(row->key, SometimesGauge(impl_->registry, *row));
  }
  for (auto& [key, gauge] : impl_->step_gauges) {
    const auto found = metrics.find(key);
    if (found == metrics.end()) {
      gauge.NotMeasured();
    } else {
      gauge.Set(found->second);
    }
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
