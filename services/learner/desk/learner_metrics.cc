#include "services/learner/desk/learner_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace oxbow::learner {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::Registry;

// A number of the last committed step that is also on /metrics.
struct GaugeOfMetric {
  std::string key;   // In metrics.jsonl.
  std::string name;  // On /metrics.
  std::string help;
  Labels labels = {};
};

std::vector<GaugeOfMetric> StepGauges(const std::vector<std::string>& rewards) {
  std::vector<GaugeOfMetric> table = {
      {"train/iw_mean", "oxbow_learner_sequence_weight_mean",
       "Mean weight W of off-policy samples."},
      {"train/iw_min", "oxbow_learner_sequence_weight_min",
       "Smallest weight W of off-policy samples."},
      {"train/iw_ess", "oxbow_learner_sequence_weight_ess",
       "Effective number of off-policy samples, (sum W)^2 / sum W^2."},
      {"train/onpolicy_ratio_err", "oxbow_learner_onpolicy_ratio_error",
       "Largest |ratio - 1| of on-policy samples before the first update."},
      {"train/grad_norm", "oxbow_learner_grad_norm", "Gradient norm before clipping."},
      {"train/loss", "oxbow_learner_loss", "Loss of the last step."},
      {"train/kl_loss", "oxbow_learner_kl_loss", "Weighted distance to the reference policy."},
      {"train/kl_div", "oxbow_learner_kl_divergence", "Distance to the reference, unweighted."},
      {"train/approx_kl", "oxbow_learner_approx_kl",
       "Mean of (log ratio)^2 / 2: how far the updates of a step moved the policy."},
      {"train/update_norm", "oxbow_learner_update_norm",
       "Euclidean distance the trained parameters moved in a step."},
      {"train/adv_abs_mean", "oxbow_learner_advantage_abs_mean", "Mean absolute advantage."},
      {"train/lr", "oxbow_learner_learning_rate", "Learning rate at the start of the step."},
      {"train/communication_s", "oxbow_learner_communication_seconds",
       "Time of the last step in which learner ranks talked to each other."},
      {"train/communication_exposed_s", "oxbow_learner_communication_exposed_seconds",
       "The part of it for which this rank stood still."},
      {"train/reward_zero_std_ratio", "oxbow_learner_zero_std_group_ratio",
       "Share of groups whose rewards are all equal and teach nothing."},
      {"eval/reward_mean", "oxbow_learner_eval_reward_mean",
       "Mean weighted reward of held-out prompts."},
      {"buffer/size", "oxbow_learner_buffer_entries",
       "Entries of the replay buffer as the learner saw it."},
      {"buffer/staleness_mean", "oxbow_learner_replay_age_steps",
       "Mean age of the replayed heads of the last step, in learner steps."},
      {"throughput/samples_per_s", "oxbow_learner_samples_per_second",
       "Samples trained on per second."},
      {"train/reward_mean",
       "oxbow_learner_reward",
       "Mean reward of the last step, by name.",
       {{"reward", "weighted_sum"}}},
  };
  for (const std::string& reward : rewards) {
    table.push_back({"eval/reward_" + reward + "_mean",
                     "oxbow_learner_eval_reward",
                     "Mean of one reward over held-out prompts, by name.",
                     {{"reward", reward}}});
    table.push_back({"train/reward_" + reward + "_mean",
                     "oxbow_learner_reward",
                     "Mean reward of the last step, by name.",
                     {{"reward", reward}}});
  }
  // Sides over all origins, and all sides of each origin: what the trainer measures.
  for (const auto& [part, side] : std::map<std::string, std::string>{
           {"high", "upper"}, {"low", "lower"}, {"zero_grad", "zero_gradient"}, {"total", "any"}}) {
    table.push_back({"train/clip_frac_" + part,
                     "oxbow_learner_clip_ratio",
                     "Share of trained transitions outside the clip range, by origin and side.",
                     {{"origin", "all"}, {"side", side}}});
  }
  for (const std::string origin : {"fresh", "stale", "replay"}) {
    table.push_back({"train/clip_frac_" + origin,
                     "oxbow_learner_clip_ratio",
                     "Share of trained transitions outside the clip range, by origin and side.",
                     {{"origin", origin}, {"side", "any"}}});
  }
  return table;
}

constexpr char kStepClip[] = "train/clip_frac_step_";

// Of a key "train/clip_frac_step_N"; nothing of another.
std::optional<GaugeOfMetric> GaugeOfStepClip(const std::string& key) {
  if (key.rfind(kStepClip, 0) != 0) return std::nullopt;
  return GaugeOfMetric{key,
                       "oxbow_learner_step_clip_ratio",
                       "Share of trained transitions outside the clip range, by denoising step.",
                       {{"denoising_step", key.substr(sizeof kStepClip - 1)}}};
}

// A gauge that is on the page while there is something to say.
class SometimesGauge {
 public:
  SometimesGauge(Registry& registry, const GaugeOfMetric& row)
      : family_(&prometheus::BuildGauge().Name(row.name).Help(row.help).Register(registry)),
        labels_(row.labels),
        lasts_(row.key.rfind("eval/", 0) == 0) {}

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
  Family<Gauge>* family_;
  Labels labels_;
  bool lasts_;
  Gauge* gauge_ = nullptr;
};

// Children of one counter, made at once for all values of its label.
class Counters {
 public:
  Counters(Registry& registry, const char* name, const char* help, const char* label,
           const std::vector<std::string>& values) {
    Family<Counter>& family = prometheus::BuildCounter().Name(name).Help(help).Register(registry);
    for (const std::string& value : values) children_[value] = &family.Add({{label, value}});
  }
  void Add(const std::string& value, double by = 1) const {
    if (const auto found = children_.find(value); found != children_.end())
      found->second->Increment(by);
  }

 private:
  std::map<std::string, Counter*> children_;
};

Counter& MakeCounter(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

Gauge& MakeGauge(Registry& registry, const std::string& name, const std::string& help,
                 const Labels& labels = {}) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}

}  // namespace

struct LearnerMetrics::Impl {
  Impl(Registry& owner, const std::vector<std::string>& rewards)
      : registry(owner),
        leases(registry, "oxbow_learner_leases_total", "Leases by what became of them.", "event",
               {"granted", "expired", "failed", "speculated", "superseded"}),
        results(registry, "oxbow_learner_results_total", "Groups that arrived, by outcome.",
                "outcome", {"accepted", "duplicate", "fenced", "superseded", "invalid"}),
        result_bytes(MakeCounter(registry, "oxbow_learner_result_bytes_total",
                                 "Latent bytes that arrived.")),
        pending(MakeGauge(registry, "oxbow_learner_groups", "Planned groups by state.",
                          {{"state", "pending"}})),
        running(MakeGauge(registry, "oxbow_learner_groups", "Planned groups by state.",
                          {{"state", "running"}})),
        ready(MakeGauge(registry, "oxbow_learner_groups", "Planned groups by state.",
                        {{"state", "ready"}})),
        sink_bytes(MakeGauge(registry, "oxbow_learner_sink_bytes",
                             "Bytes of un-consumed experience and granted credit.")),
        workers(MakeGauge(registry, "oxbow_learner_workers", "Workers connected.")),
        weights_lag(
            MakeGauge(registry, "oxbow_learner_weights_lag_versions",
                      "Versions by which the slowest connected worker trails what is published.")),
        version(MakeGauge(registry, "oxbow_learner_policy_version", "Optimiser updates so far.")),
        published(MakeGauge(registry, "oxbow_learner_published_version",
                            "Version of the newest published weights.")),
        step_seconds(prometheus::BuildHistogram()
                         .Name("oxbow_learner_step_duration_seconds")
                         .Help("Wall time of a learner step.")
                         .Register(registry)
                         .Add({}, Histogram::BucketBoundaries{.05, .1, .15, .2, .25, .35, .5, 1,
                                                              2.5, 5, 10, 20, 40, 80, 160})),
        phase_seconds(registry, "oxbow_learner_phase_seconds_total",
                      "Time of the learner by phase.", "phase",
                      {"plan", "wait", "update", "publish", "offer", "eval", "checkpoint", "log"}),
        staleness(
            prometheus::BuildHistogram()
                .Name("oxbow_learner_sample_staleness_steps")
                .Help("Learner steps between the weights that made a fresh sample and its update.")
                .Register(registry)
                .Add({}, Histogram::BucketBoundaries{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32})),
        staleness_budget(MakeGauge(registry, "oxbow_learner_staleness_budget_steps",
                                   "Largest staleness that a fresh sample may have.")),
        samples(registry, "oxbow_learner_samples_total", "Samples trained on, by origin.", "origin",
                {"fresh", "replay"}),
        buffer_attached(
            MakeGauge(registry, "oxbow_learner_buffer_attached",
                      "1 while the replay buffer answers, 0 while the run goes on without.")),
        buffer_failures(registry, "oxbow_learner_buffer_failures_total",
                        "Calls to the replay buffer that failed after retries.", "call",
                        {"draw", "read", "commit", "checkpoint", "restore"}),
        commits_dropped(MakeCounter(
            registry, "oxbow_learner_buffer_commits_dropped_total",
            "Steps whose offers were lost: the buffer was away too long or refused them.")),
        offers(registry, "oxbow_learner_offers_total", "Offers to the replay buffer by outcome.",
               "outcome",
               {"inserted", "replaced", "rejected_lower", "duplicate", "rejected_invalid"}),
        heads_missing(MakeCounter(registry, "oxbow_learner_heads_missing_total",
                                  "Groups planned with a replayed head that ran without one.")),
        heads_refused(registry, "oxbow_learner_heads_refused_total",
                      "Drawn replay entries that do not fit the run or the step's window.",
                      "reason", {"schedule", "no_density", "window", "size"}),
        evaluation_failures(MakeCounter(registry, "oxbow_learner_evaluation_failures_total",
                                        "Evaluations that could not be scored.")),
        checkpoints(
            MakeCounter(registry, "oxbow_learner_checkpoints_total", "Checkpoints written.")),
        checkpoint_bytes(MakeGauge(registry, "oxbow_learner_checkpoint_bytes",
                                   "Size of the newest checkpoint.")) {
    for (const GaugeOfMetric& row : StepGauges(rewards)) {
      step_gauges.emplace(row.key, SometimesGauge(registry, row));
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
  Gauge& weights_lag;
  Gauge& version;
  Gauge& published;
  Histogram& step_seconds;
  Counters phase_seconds;
  Histogram& staleness;
  Gauge& staleness_budget;
  Counters samples;
  Gauge& buffer_attached;
  Counters buffer_failures;
  Counter& commits_dropped;
  Counters offers;
  Counter& heads_missing;
  Counters heads_refused;
  Counter& evaluation_failures;
  Counter& checkpoints;
  Gauge& checkpoint_bytes;
  absl::Mutex mutex;
  std::map<std::string, SometimesGauge> step_gauges ABSL_GUARDED_BY(mutex);  // By key.
};

LearnerMetrics::LearnerMetrics(Registry& registry, const std::vector<std::string>& rewards)
    : impl_(std::make_unique<Impl>(registry, rewards)) {}
LearnerMetrics::~LearnerMetrics() = default;

void LearnerMetrics::LeaseGranted() { impl_->leases.Add("granted"); }
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

void LearnerMetrics::WorkersAre(uint64_t connected, uint64_t weights_lag_max) {
  impl_->workers.Set(static_cast<double>(connected));
  impl_->weights_lag.Set(static_cast<double>(weights_lag_max));
}

void LearnerMetrics::StepCommitted(double seconds, const std::map<std::string, double>& metrics) {
  impl_->step_seconds.Observe(seconds);
  absl::MutexLock lock(&impl_->mutex);
  // Which denoising steps are trained is known when they are.
  for (auto at = metrics.lower_bound(kStepClip); at != metrics.end(); ++at) {
    const std::optional<GaugeOfMetric> row = GaugeOfStepClip(at->first);
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

void LearnerMetrics::SampleConsumed(uint64_t staleness_steps, bool replayed) {
  impl_->samples.Add(replayed ? "replay" : "fresh");
  if (!replayed) impl_->staleness.Observe(static_cast<double>(staleness_steps));
}

void LearnerMetrics::StalenessBudgetIs(uint64_t steps) {
  impl_->staleness_budget.Set(static_cast<double>(steps));
}

void LearnerMetrics::VersionIs(uint64_t policy_version, uint64_t published_version) {
  impl_->version.Set(static_cast<double>(policy_version));
  impl_->published.Set(static_cast<double>(published_version));
}

void LearnerMetrics::BufferAttached(bool attached) { impl_->buffer_attached.Set(attached ? 1 : 0); }
void LearnerMetrics::BufferFailed(const std::string& call) { impl_->buffer_failures.Add(call); }
void LearnerMetrics::BufferCommitsDropped() { impl_->commits_dropped.Increment(); }
void LearnerMetrics::OfferAnswered(const std::string& outcome) { impl_->offers.Add(outcome); }
void LearnerMetrics::HeadMissing() { impl_->heads_missing.Increment(); }
void LearnerMetrics::HeadRefused(const std::string& reason) { impl_->heads_refused.Add(reason); }
void LearnerMetrics::EvaluationFailed() { impl_->evaluation_failures.Increment(); }

void LearnerMetrics::CheckpointWritten(uint64_t bytes) {
  impl_->checkpoints.Increment();
  impl_->checkpoint_bytes.Set(static_cast<double>(bytes));
}

}  // namespace oxbow::learner
