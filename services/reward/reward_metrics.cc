// SPDX-License-Identifier: Apache-2.0
#include "services/reward/reward_metrics.h"

#include "telemetry/metrics.h"

namespace oxbow::reward {
namespace {

using telemetry::Buckets;

const Buckets& SecondsBuckets() {
  static const Buckets buckets = {.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10};
  return buckets;
}

const Buckets& FillBuckets() {
  static const Buckets buckets = {.1, .2, .3, .4, .5, .6, .7, .8, .9, 1};
  return buckets;
}

// Every error is of one of these kinds.
constexpr const char* kKinds[] = {"busy",    "internal", "invalid",    "nonsense",
                                  "refused", "timeout",  "unavailable"};

std::string KindOf(const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kResourceExhausted:
      return "busy";
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return "invalid";
    case absl::StatusCode::kDataLoss:
      return "nonsense";
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return "refused";
    case absl::StatusCode::kDeadlineExceeded:
      return "timeout";
    case absl::StatusCode::kUnavailable:
      return "unavailable";
    default:
      return "internal";
  }
}

// Tenths of the reward's documented range.
Buckets ScoreBuckets(const RewardFacts& facts) {
  Buckets buckets;
  const double width = facts.value_max - facts.value_min;
  for (int i = 0; i <= 10; ++i) buckets.push_back(facts.value_min + width * i / 10);
  return buckets;
}

}  // namespace

RewardMetrics::RewardMetrics(prometheus::Registry& registry, const ScorerPanel& panel) {
  auto& items = telemetry::Family(registry, exported::kRewardItemsTotal);
  auto& cached = telemetry::Family(registry, exported::kRewardCacheHitsTotal);
  auto& errors = telemetry::Family(registry, exported::kRewardErrorsTotal);
  auto& scores = telemetry::Family(registry, exported::kRewardScore);
  auto& queues = telemetry::Family(registry, exported::kRewardQueueSeconds);
  auto& fills = telemetry::Family(registry, exported::kRewardBatchFillRatio);
  auto& scoring = telemetry::Family(registry, exported::kRewardScoringSeconds);
  auto& serving = telemetry::Family(registry, exported::kRewardServing);
  for (const auto& scorer : panel.scorers()) {
    const std::string name = scorer->facts().name;
    rewards_[name] = {
        .scored = &items.Add({{"reward", name}, {"outcome", "scored"}}),
        .invalid = &items.Add({{"reward", name}, {"outcome", "invalid"}}),
        .failed = &items.Add({{"reward", name}, {"outcome", "failed"}}),
        .cached = &cached.Add({{"reward", name}}),
        .errors = {},
        .score = &scores.Add({{"reward", name}}, ScoreBuckets(scorer->facts())),
        .queue = &queues.Add({{"reward", name}}, SecondsBuckets()),
        .fill = &fills.Add({{"reward", name}}, FillBuckets()),
        .scoring = &scoring.Add({{"reward", name}}, SecondsBuckets()),
        .serving = &serving.Add({{"reward", name}}),
    };
    for (const char* kind : kKinds) {
      rewards_[name].errors[kind] = &errors.Add({{"kind", kind}, {"reward", name}});
    }
    Serves(name, true);
  }
  auto& calls = telemetry::Family(registry, exported::kRewardRequestDurationSeconds);
  call_ok_ = &calls.Add({{"outcome", "ok"}}, SecondsBuckets());
  call_error_ = &calls.Add({{"outcome", "error"}}, SecondsBuckets());
  batch_items_ =
      &telemetry::Metric(registry, exported::kRewardBatchItems, {1, 2, 4, 8, 16, 32, 64, 128, 256});
}

void RewardMetrics::ItemScored(const std::string& reward, const Score& score) {
  const OfReward& of = rewards_.at(reward);
  of.scored->Increment();
  of.score->Observe(score.value);
  if (score.cached) of.cached->Increment();
}

void RewardMetrics::ItemRefused(const std::string& reward, const absl::Status& why) {
  const OfReward& of = rewards_.at(reward);
  of.errors.at(KindOf(why))->Increment();
  if (absl::IsResourceExhausted(why)) return;  // A busy scorer has not failed.
  const bool invalid = absl::IsInvalidArgument(why) || absl::IsFailedPrecondition(why);
  (invalid ? of.invalid : of.failed)->Increment();
}

void RewardMetrics::BatchArrived(size_t items) {
  batch_items_->Observe(static_cast<double>(items));
}

void RewardMetrics::BatchScored(const RewardFacts& reward, size_t items, absl::Duration waited,
                                absl::Duration took) {
  const OfReward& of = rewards_.at(reward.name);
  of.queue->Observe(absl::ToDoubleSeconds(waited));
  of.scoring->Observe(absl::ToDoubleSeconds(took));
  if (reward.batch_max == 0) return;  // It gains nothing by batches.
  of.fill->Observe(static_cast<double>(items) / reward.batch_max);
}

void RewardMetrics::Serves(const std::string& reward, bool serves) {
  rewards_.at(reward).serving->Set(serves ? 1 : 0);
}

void RewardMetrics::CallEnded(absl::Duration duration, bool ok) {
  (ok ? call_ok_ : call_error_)->Observe(absl::ToDoubleSeconds(duration));
}

}  // namespace oxbow::reward
