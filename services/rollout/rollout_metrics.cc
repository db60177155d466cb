// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/rollout_metrics.h"

#include <map>
#include <string>

#include "telemetry/metrics.h"

namespace oxbow::rollout {
namespace {

using telemetry::Metric;

const telemetry::Buckets kSampleBuckets = {.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 40, 160};
const telemetry::Buckets kCallBuckets = {.001, .0025, .005, .01, .025, .05, .1,
                                         .25,  .5,    1,    2.5, 5,    10};

}  // namespace

struct RolloutMetrics::Impl {
  explicit Impl(prometheus::Registry& r)
      : samples(Metric(r, exported::kRolloutSamplesTotal)),
        sampling(Metric(r, exported::kRolloutBatchDurationSeconds, kSampleBuckets)),
        idle(Metric(r, exported::kRolloutIdleSecondsTotal)),
        scoring(Metric(r, exported::kRolloutRewardDurationSeconds, kCallBuckets)),
        observed_failed(telemetry::Family(r, exported::kRolloutObservedFailedTotal)),
        delivery(Metric(r, exported::kRolloutDeliveryDurationSeconds, kCallBuckets)),
        version(Metric(r, exported::kRolloutPolicyVersion)),
        apply(Metric(r, exported::kRolloutWeightsApplyDurationSeconds, kCallBuckets)),
        in_flight(Metric(r, exported::kRolloutGroupsInFlight)),
        reconnects(Metric(r, exported::kRolloutReconnectsTotal)) {
    for (const char* outcome :
         {"accepted", "duplicate", "fenced", "superseded", "invalid", "failed"}) {
      groups.emplace(outcome, &Metric(r, exported::kRolloutGroupsTotal, {{"outcome", outcome}}));
    }
    for (const char* source : {"held", "learner", "peer"}) {
      conditioning.emplace(
          source, &Metric(r, exported::kRolloutConditioningBytesTotal, {{"source", source}}));
    }
  }

  prometheus::Counter& samples;
  prometheus::Histogram& sampling;
  prometheus::Counter& idle;
  prometheus::Histogram& scoring;
  prometheus::Family<prometheus::Counter>& observed_failed;
  prometheus::Histogram& delivery;
  prometheus::Gauge& version;
  prometheus::Histogram& apply;
  prometheus::Gauge& in_flight;
  prometheus::Counter& reconnects;
  std::map<std::string, prometheus::Counter*> groups;
  std::map<std::string, prometheus::Counter*> conditioning;  // By source.
};

RolloutMetrics::RolloutMetrics(prometheus::Registry& registry)
    : impl_(std::make_unique<Impl>(registry)) {}
RolloutMetrics::~RolloutMetrics() = default;

void RolloutMetrics::ConditioningFrom(const std::string& source, uint64_t bytes) {
  impl_->conditioning.at(source)->Increment(static_cast<double>(bytes));
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
