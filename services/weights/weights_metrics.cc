// SPDX-License-Identifier: Apache-2.0
#include "services/weights/weights_metrics.h"

#include <algorithm>

#include "telemetry/metrics.h"

namespace oxbow::weights {
namespace {

using telemetry::Metric;

const telemetry::Buckets kSeconds = {.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100};

}  // namespace

PublishMetrics::PublishMetrics(prometheus::Registry& r)
    : publish_seconds_(Metric(r, exported::kWeightsPublishSeconds, kSeconds)),
      published_version_(Metric(r, exported::kWeightsPublishedVersion)),
      published_time_(Metric(r, exported::kWeightsPublishedTimestampSeconds)),
      held_bytes_(Metric(r, exported::kWeightsHeldBytes)),
      served_bytes_(Metric(r, exported::kWeightsServedBytesTotal)),
      conditioning_bytes_(Metric(r, exported::kLearnerConditioningServedBytesTotal)),
      changed_bytes_(Metric(r, exported::kWeightsChangedBytesTotal)),
      egress_copies_(Metric(r, exported::kWeightsEgressCopies)),
      watchers_(Metric(r, exported::kWeightsWatchers)),
      excluded_(Metric(r, exported::kWeightsPeersExcluded)),
      excluded_corrupt_(Metric(r, exported::kWeightsPeerFaultsTotal, {{"fault", "corrupt"}})),
      excluded_silent_(Metric(r, exported::kWeightsPeerFaultsTotal, {{"fault", "silent"}})),
      withheld_not_finite_(Metric(r, exported::kWeightsWithheldTotal, {{"reason", "not_finite"}})),
      withheld_reward_(Metric(r, exported::kWeightsWithheldTotal, {{"reason", "reward_floor"}})),
      applied_equal_(Metric(r, exported::kWeightsReportsTotal, {{"outcome", "equal"}})),
      applied_close_(Metric(r, exported::kWeightsReportsTotal, {{"outcome", "close"}})),
      refused_(Metric(r, exported::kWeightsReportsTotal, {{"outcome", "refused"}})),
      broadcast_bytes_(Metric(r, exported::kWeightsBroadcastBytesTotal)),
      rounds_whole_(Metric(r, exported::kWeightsBroadcastRoundsTotal, {{"outcome", "whole"}})),
      rounds_failed_(Metric(r, exported::kWeightsBroadcastRoundsTotal, {{"outcome", "failed"}})),
      rounds_skipped_(Metric(r, exported::kWeightsBroadcastRoundsTotal, {{"outcome", "skipped"}})),
      broadcast_seconds_(Metric(r, exported::kWeightsBroadcastSeconds, kSeconds)),
      broadcast_receivers_(Metric(r, exported::kWeightsBroadcastMembers)),
      broadcast_groups_failed_(Metric(r, exported::kWeightsBroadcastGroupsFailedTotal)) {}

void PublishMetrics::Published(PolicyVersion version, absl::Duration took, uint64_t bytes_held) {
  publish_seconds_.Observe(absl::ToDoubleSeconds(took));
  published_version_.Set(static_cast<double>(version.value));
  published_time_.SetToCurrentTime();
  held_bytes_.Set(static_cast<double>(bytes_held));
}

void PublishMetrics::Withheld(const std::string& reason) {
  (reason == "not_finite" ? withheld_not_finite_ : withheld_reward_).Increment();
}

void PublishMetrics::Changed(uint64_t bytes) {
  changed_bytes_.Increment(static_cast<double>(bytes));
  changed_ = bytes;
  served_ = 0;
  egress_copies_.Set(0);
}

void PublishMetrics::ChunkServed(uint64_t bytes) {
  served_bytes_.Increment(static_cast<double>(bytes));
  const double served = static_cast<double>(served_ += bytes);
  if (const uint64_t changed = changed_; changed > 0) {
    egress_copies_.Set(served / static_cast<double>(changed));
  }
}

void PublishMetrics::ContentServed(uint64_t bytes) {
  conditioning_bytes_.Increment(static_cast<double>(bytes));
}

void PublishMetrics::WatchersAre(uint64_t watchers, uint64_t excluded) {
  watchers_.Set(static_cast<double>(watchers));
  excluded_.Set(static_cast<double>(excluded));
}

void PublishMetrics::PeerExcluded(bool corrupt) {
  (corrupt ? excluded_corrupt_ : excluded_silent_).Increment();
}

void PublishMetrics::WatcherApplied(bool bits_equal) {
  (bits_equal ? applied_equal_ : applied_close_).Increment();
}

void PublishMetrics::WatcherRefused() { refused_.Increment(); }

void PublishMetrics::Broadcast(uint64_t bytes) {
  broadcast_bytes_.Increment(static_cast<double>(bytes));
}

void PublishMetrics::BroadcastRound(const std::string& outcome) {
  (outcome == "whole"    ? rounds_whole_
   : outcome == "failed" ? rounds_failed_
                         : rounds_skipped_)
      .Increment();
}

void PublishMetrics::BroadcastTook(absl::Duration took) {
  broadcast_seconds_.Observe(absl::ToDoubleSeconds(took));
}

void PublishMetrics::BroadcastMembersAre(uint64_t members) {
  broadcast_receivers_.Set(static_cast<double>(members));
}

void PublishMetrics::BroadcastGroupFailed() { broadcast_groups_failed_.Increment(); }

FollowMetrics::FollowMetrics(prometheus::Registry& r)
    : fetch_seconds_(Metric(r, exported::kWeightsFetchSeconds, kSeconds)),
      apply_seconds_(Metric(r, exported::kWeightsApplySeconds, kSeconds)),
      learner_bytes_(Metric(r, exported::kWeightsFetchedBytesTotal, {{"source", "learner"}})),
      peer_bytes_(Metric(r, exported::kWeightsFetchedBytesTotal, {{"source", "peer"}})),
      broadcast_bytes_(Metric(r, exported::kWeightsFetchedBytesTotal, {{"source", "broadcast"}})),
      relayed_bytes_(Metric(r, exported::kWeightsRelayedBytesTotal)),
      corrupt_chunks_(Metric(r, exported::kWeightsCorruptChunksTotal)),
      peer_corrupt_(Metric(r, exported::kWeightsPeerFailuresTotal, {{"how", "corrupt"}})),
      peer_silent_(Metric(r, exported::kWeightsPeerFailuresTotal, {{"how", "silent"}})),
      peer_lacking_(Metric(r, exported::kWeightsPeerFailuresTotal, {{"how", "lacking"}})),
      refused_(Metric(r, exported::kWeightsRefusedTotal)),
      announced_version_(Metric(r, exported::kWeightsAnnouncedVersion)),
      applied_version_(Metric(r, exported::kWeightsAppliedVersion)),
      lag_(Metric(r, exported::kWeightsLagVersions)) {}

void FollowMetrics::Announced(PolicyVersion version) {
  announced_version_.Set(static_cast<double>(version.value));
  SetLag();
}

void FollowMetrics::Received(uint64_t bytes, Source source) {
  prometheus::Counter& counter = source == Source::kLearner ? learner_bytes_
                                 : source == Source::kPeer  ? peer_bytes_
                                                            : broadcast_bytes_;
  counter.Increment(static_cast<double>(bytes));
}

void FollowMetrics::Fetched(absl::Duration took) {
  fetch_seconds_.Observe(absl::ToDoubleSeconds(took));
}

void FollowMetrics::PeerFailed(const std::string& how) {
  (how == "corrupt" ? peer_corrupt_ : how == "silent" ? peer_silent_ : peer_lacking_).Increment();
}

void FollowMetrics::Relayed(uint64_t bytes) {
  relayed_bytes_.Increment(static_cast<double>(bytes));
}

void FollowMetrics::ChunkCorrupt() { corrupt_chunks_.Increment(); }

void FollowMetrics::Applied(PolicyVersion version, absl::Duration took) {
  apply_seconds_.Observe(absl::ToDoubleSeconds(took));
  applied_version_.Set(static_cast<double>(version.value));
  SetLag();
}

void FollowMetrics::Refused() { refused_.Increment(); }

void FollowMetrics::SetLag() {
  lag_.Set(std::max(0.0, announced_version_.Value() - applied_version_.Value()));
}

}  // namespace oxbow::weights
