// SPDX-License-Identifier: Apache-2.0
#include "services/weights/weights_metrics.h"

#include <algorithm>

#include "telemetry/metrics.h"

namespace oxbow::weights {
namespace {

using telemetry::Metric;

const telemetry::Buckets kSeconds = {.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100};

}  // namespace

void EgressCopies::Changed(uint64_t bytes) {
  changed_ = bytes;
  served_ = 0;
  copies_.Set(0);
}

void EgressCopies::Served(uint64_t bytes) {
  const double served = static_cast<double>(served_ += bytes);
  if (const uint64_t changed = changed_; changed > 0) {
    copies_.Set(served / static_cast<double>(changed));
  }
}

BroadcastMetrics::BroadcastMetrics(prometheus::Registry& r)
    : bytes_(Metric(r, exported::kWeightsBroadcastBytesTotal)),
      rounds_(r, exported::kWeightsBroadcastRoundsTotal, "outcome", {"whole", "failed", "skipped"}),
      seconds_(Metric(r, exported::kWeightsBroadcastSeconds, kSeconds)),
      members_(Metric(r, exported::kWeightsBroadcastMembers)),
      groups_failed_(Metric(r, exported::kWeightsBroadcastGroupsFailedTotal)) {}

void BroadcastMetrics::Sent(uint64_t bytes) { bytes_.Increment(static_cast<double>(bytes)); }

void BroadcastMetrics::Round(const std::string& outcome) { rounds_.Add(outcome); }

void BroadcastMetrics::Took(absl::Duration took) { seconds_.Observe(absl::ToDoubleSeconds(took)); }

void BroadcastMetrics::MembersAre(uint64_t members) { members_.Set(static_cast<double>(members)); }

void BroadcastMetrics::GroupFailed() { groups_failed_.Increment(); }

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
      faults_(r, exported::kWeightsPeerFaultsTotal, "fault", {"corrupt", "silent"}),
      withheld_(r, exported::kWeightsWithheldTotal, "reason", {"not_finite", "reward_floor"}),
      reports_(r, exported::kWeightsReportsTotal, "outcome", {"equal", "close", "refused"}),
      broadcast_(r) {}

void PublishMetrics::Published(PolicyVersion version, absl::Duration took, uint64_t bytes_held) {
  publish_seconds_.Observe(absl::ToDoubleSeconds(took));
  published_version_.Set(static_cast<double>(version.value));
  published_time_.SetToCurrentTime();
  held_bytes_.Set(static_cast<double>(bytes_held));
}

void PublishMetrics::Withheld(const std::string& reason) { withheld_.Add(reason); }

void PublishMetrics::Changed(uint64_t bytes) {
  changed_bytes_.Increment(static_cast<double>(bytes));
  egress_copies_.Changed(bytes);
}

void PublishMetrics::ChunkServed(uint64_t bytes) {
  served_bytes_.Increment(static_cast<double>(bytes));
  egress_copies_.Served(bytes);
}

void PublishMetrics::ContentServed(uint64_t bytes) {
  conditioning_bytes_.Increment(static_cast<double>(bytes));
}

void PublishMetrics::WatchersAre(uint64_t watchers, uint64_t excluded) {
  watchers_.Set(static_cast<double>(watchers));
  excluded_.Set(static_cast<double>(excluded));
}

void PublishMetrics::PeerExcluded(bool corrupt) { faults_.Add(corrupt ? "corrupt" : "silent"); }

void PublishMetrics::WatcherApplied(bool bits_equal) {
  reports_.Add(bits_equal ? "equal" : "close");
}

void PublishMetrics::WatcherRefused() { reports_.Add("refused"); }

FollowMetrics::FollowMetrics(prometheus::Registry& r)
    : fetch_seconds_(Metric(r, exported::kWeightsFetchSeconds, kSeconds)),
      apply_seconds_(Metric(r, exported::kWeightsApplySeconds, kSeconds)),
      learner_bytes_(Metric(r, exported::kWeightsFetchedBytesTotal, {{"source", "learner"}})),
      peer_bytes_(Metric(r, exported::kWeightsFetchedBytesTotal, {{"source", "peer"}})),
      broadcast_bytes_(Metric(r, exported::kWeightsFetchedBytesTotal, {{"source", "broadcast"}})),
      relayed_bytes_(Metric(r, exported::kWeightsRelayedBytesTotal)),
      corrupt_chunks_(Metric(r, exported::kWeightsCorruptChunksTotal)),
      peers_failed_(r, exported::kWeightsPeerFailuresTotal, "how",
                    {"corrupt", "silent", "lacking"}),
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

void FollowMetrics::PeerFailed(const std::string& how) { peers_failed_.Add(how); }

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
