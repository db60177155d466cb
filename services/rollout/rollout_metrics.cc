#include "services/rollout/rollout_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <map>

namespace oxbow::rollout {
namespace {

const prometheus::Histogram::BucketBoundaries kSampleBuckets = {.01, .025, .05, .1, .25, .5,
                                                                1,   2.5,  5,   10, 40,  160};
const prometheus::Histogram::BucketBoundaries kCallBuckets = {.001, .0025, .005, .01, .025, .05, .1,
                                                              .25,  .5,    1,    2.5, 5,    10};

prometheus::Counter& CounterOf(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Gauge& GaugeOf(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Histogram& HistogramOf(prometheus::Registry& registry, const char* name,
                                   const char* help,
                                   const prometheus::Histogram::BucketBoundaries& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
}

}  // namespace

struct RolloutMetrics::Impl {
  explicit Impl(prometheus::Registry& registry)
      : samples(CounterOf(registry, "oxbow_rollout_samples_total", "Trajectories sampled.")),
        sampling(HistogramOf(registry, "oxbow_rollout_batch_duration_seconds",
                             "Denoising and decoding of one batch of leased groups.",
                             kSampleBuckets)),
        idle(CounterOf(registry, "oxbow_rollout_idle_seconds_total",
                       "Time the sampler waited for leases or weights.")),
        scoring(HistogramOf(registry, "oxbow_rollout_reward_duration_seconds",
                            "From asking reward servers about a group to its last score.",
                            kCallBuckets)),
        delivery(HistogramOf(registry, "oxbow_rollout_delivery_duration_seconds",
                             "From the first byte of a group to the learner's answer.",
                             kCallBuckets)),
        version(GaugeOf(registry, "oxbow_rollout_policy_version", "Policy version in use.")),
        apply(HistogramOf(registry, "oxbow_rollout_weights_apply_duration_seconds",
                          "Swapping verified weights in, probe included.", kCallBuckets)),
        in_flight(GaugeOf(registry, "oxbow_rollout_groups_in_flight", "Leases held.")),
        reconnects(CounterOf(registry, "oxbow_rollout_reconnects_total",
                             "Times the line to the learner was lost and taken up again.")) {
    auto& family = prometheus::BuildCounter()
                       .Name("oxbow_rollout_groups_total")
                       .Help("Groups by what became of them.")
                       .Register(registry);
    for (const char* outcome :
         {"accepted", "duplicate", "fenced", "superseded", "invalid", "failed"}) {
      groups.emplace(outcome, &family.Add({{"outcome", outcome}}));
    }
  }

  prometheus::Counter& samples;
  prometheus::Histogram& sampling;
  prometheus::Counter& idle;
  prometheus::Histogram& scoring;
  prometheus::Histogram& delivery;
  prometheus::Gauge& version;
  prometheus::Histogram& apply;
  prometheus::Gauge& in_flight;
  prometheus::Counter& reconnects;
  std::map<std::string, prometheus::Counter*> groups;
};

RolloutMetrics::RolloutMetrics(prometheus::Registry& registry)
    : impl_(std::make_unique<Impl>(registry)) {}
RolloutMetrics::~RolloutMetrics() = default;

void RolloutMetrics::BatchSampled(uint64_t samples, double seconds) {
  impl_->samples.Increment(static_cast<double>(samples));
  impl_->sampling.Observe(seconds);
}
void RolloutMetrics::WaitedForLeases(double seconds) { impl_->idle.Increment(seconds); }
void RolloutMetrics::GroupScored(double seconds) { impl_->scoring.Observe(seconds); }
void RolloutMetrics::GroupDelivered(const std::string& outcome, double seconds) {
  impl_->groups.at(outcome)->Increment();
  impl_->delivery.Observe(seconds);
}
void RolloutMetrics::WeightsApplied(uint64_t policy_version, double seconds) {
  impl_->version.Set(static_cast<double>(policy_version));
  impl_->apply.Observe(seconds);
}
void RolloutMetrics::GroupsInFlight(uint64_t groups) {
  impl_->in_flight.Set(static_cast<double>(groups));
}
void RolloutMetrics::Reconnected() { impl_->reconnects.Increment(); }

}  // namespace oxbow::rollout
