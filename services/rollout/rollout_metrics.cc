// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/rollout_metrics.h"

#include "telemetry/metrics.h"

namespace oxbow::rollout {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;
using telemetry::Counters;
using telemetry::Metric;

const telemetry::Buckets kSampleBuckets = {.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 40, 160};
const telemetry::Buckets kCallBuckets = {.001, .0025, .005, .01, .025, .05, .1,
                                         .25,  .5,    1,    2.5, 5,    10};

}  // namespace

struct RolloutMetrics::Impl {
  explicit Impl(Registry& registry) : r(registry) {}

  Registry& r;
  Counter& samples = Metric(r, exported::kRolloutSamplesTotal);
  Histogram& sampling = Metric(r, exported::kRolloutBatchDurationSeconds, kSampleBuckets);
  Counter& idle = Metric(r, exported::kRolloutIdleSecondsTotal);
  Histogram& scoring = Metric(r, exported::kRolloutRewardDurationSeconds, kCallBuckets);
  prometheus::Family<Counter>& observed_failed =
      telemetry::Family(r, exported::kRolloutObservedFailedTotal);
  Histogram& delivery = Metric(r, exported::kRolloutDeliveryDurationSeconds, kCallBuckets);
  Gauge& version = Metric(r, exported::kRolloutPolicyVersion);
  Histogram& apply = Metric(r, exported::kRolloutWeightsApplyDurationSeconds, kCallBuckets);
  Gauge& in_flight = Metric(r, exported::kRolloutGroupsInFlight);
  Counter& reconnects = Metric(r, exported::kRolloutReconnectsTotal);
  Counters groups{r,
                  exported::kRolloutGroupsTotal,
                  "outcome",
                  {"accepted", "duplicate", "fenced", "superseded", "invalid", "failed"}};
  Counters conditioning{
      r, exported::kRolloutConditioningBytesTotal, "source", {"held", "learner", "peer"}};
};

RolloutMetrics::RolloutMetrics(Registry& registry) : impl_(std::make_unique<Impl>(registry)) {}
RolloutMetrics::~RolloutMetrics() = default;

void RolloutMetrics::ConditioningFrom(const std::string& source, uint64_t bytes) {
  impl_->conditioning.Add(source, static_cast<double>(bytes));
}

void RolloutMetrics::BatchSampled(uint64_t samples, double seconds) {
  impl_->samples.Increment(static_cast<double>(samples));
  impl_->sampling.Observe(seconds);
}
void RolloutMetrics::WaitedForLeases(double seconds) { impl_->idle.Increment(seconds); }
void RolloutMetrics::GroupScored(double seconds) { impl_->scoring.Observe(seconds); }
void RolloutMetrics::ObservedFailed(const std::string& reward, uint32_t samples) {
  impl_->observed_failed.Add({{"reward", reward}}).Increment(samples);
}
void RolloutMetrics::GroupDelivered(const std::string& outcome, double seconds) {
  impl_->groups.Add(outcome);
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
