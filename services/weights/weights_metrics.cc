#include "services/weights/weights_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <map>
#include <string>

namespace oxbow::weights {
namespace {

using Labels = std::map<std::string, std::string>;

prometheus::Counter& Counter(prometheus::Registry& registry, const char* name, const char* help,
                             const Labels& labels = {}) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}

prometheus::Gauge& Gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Histogram& Seconds(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(
      {}, prometheus::Histogram::BucketBoundaries{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100});
}

prometheus::Counter& Round(prometheus::Registry& registry, const char* outcome) {
  return Counter(registry, "oxbow_weights_broadcast_rounds_total",
                 "Publications to workers that can take part in broadcasts, by outcome.",
                 {{"outcome", outcome}});
}

prometheus::Counter& FetchedFrom(prometheus::Registry& registry, const char* source) {
  return Counter(registry, "oxbow_weights_fetched_bytes_total", "Chunk bytes received, by source.",
                 {{"source", source}});
}

}  // namespace

PublishMetrics::PublishMetrics(prometheus::Registry& registry)
    : publish_seconds_(Seconds(registry, "oxbow_weights_publish_seconds",
                               "Time to hash, cut and announce a snapshot.")),
      published_version_(
          Gauge(registry, "oxbow_weights_published_version", "Newest published policy version.")),
      published_time_(Gauge(registry, "oxbow_weights_published_timestamp_seconds",
                            "When weights were published last; 0: not yet.")),
      held_bytes_(
          Gauge(registry, "oxbow_weights_held_bytes", "Bytes of retained chunks, each held once.")),
      served_bytes_(
          Counter(registry, "oxbow_weights_served_bytes_total", "Chunk bytes sent to watchers.")),
      changed_bytes_(Counter(registry, "oxbow_weights_changed_bytes_total",
                             "Chunk bytes of snapshots that no retained snapshot had.")),
      egress_copies_(Gauge(registry, "oxbow_weights_egress_copies",
                           "Bytes sent since the newest snapshot, over its changed bytes.")),
      watchers_(Gauge(registry, "oxbow_weights_watchers", "Workers that watch for weights.")),
      excluded_(Gauge(registry, "oxbow_weights_peers_excluded",
                      "Workers that are not handed out as sources.")),
      excluded_corrupt_(Counter(registry, "oxbow_weights_peer_faults_total",
                                "Workers taken out as sources, by fault.", {{"fault", "corrupt"}})),
      excluded_silent_(Counter(registry, "oxbow_weights_peer_faults_total",
                               "Workers taken out as sources, by fault.", {{"fault", "silent"}})),
      withheld_not_finite_(Counter(registry, "oxbow_weights_withheld_total",
                                   "Snapshots that were not published, by reason.",
                                   {{"reason", "not_finite"}})),
      withheld_reward_(Counter(registry, "oxbow_weights_withheld_total",
                               "Snapshots that were not published, by reason.",
                               {{"reason", "reward_floor"}})),
      applied_equal_(Counter(registry, "oxbow_weights_reports_total",
                             "Reports of watchers, by what their probe said.",
                             {{"outcome", "equal"}})),
      applied_close_(Counter(registry, "oxbow_weights_reports_total",
                             "Reports of watchers, by what their probe said.",
                             {{"outcome", "close"}})),
      refused_(Counter(registry, "oxbow_weights_reports_total",
                       "Reports of watchers, by what their probe said.", {{"outcome", "refused"}})),
      broadcast_bytes_(Counter(registry, "oxbow_weights_broadcast_bytes_total",
                               "Chunk bytes broadcast, each counted once.")),
      rounds_whole_(Round(registry, "whole")),
      rounds_failed_(Round(registry, "failed")),
      rounds_skipped_(Round(registry, "skipped")),
      broadcast_seconds_(Seconds(registry, "oxbow_weights_broadcast_seconds",
                                 "Time of a broadcast that reached every member.")),
      circle_members_(Gauge(registry, "oxbow_weights_circle_members",
                            "Workers that get new weights by broadcast.")),
      circles_failed_(Counter(registry, "oxbow_weights_circles_failed_total",
                              "Circles for broadcasts in which not all came together.")) {}

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

void PublishMetrics::CircleMembersAre(uint64_t members) {
  circle_members_.Set(static_cast<double>(members));
}

void PublishMetrics::CircleFailed() { circles_failed_.Increment(); }

FollowMetrics::FollowMetrics(prometheus::Registry& registry)
    : fetch_seconds_(Seconds(registry, "oxbow_weights_fetch_seconds",
                             "Time from manifest to verified tensors.")),
      apply_seconds_(Seconds(registry, "oxbow_weights_apply_seconds",
                             "Time to load verified tensors and run the probe.")),
      learner_bytes_(FetchedFrom(registry, "learner")),
      peer_bytes_(FetchedFrom(registry, "peer")),
      broadcast_bytes_(FetchedFrom(registry, "broadcast")),
      relayed_bytes_(Counter(registry, "oxbow_weights_relayed_bytes_total",
                             "Chunk bytes passed on to other workers.")),
      corrupt_chunks_(Counter(registry, "oxbow_weights_corrupt_chunks_total",
                              "Chunks whose hash was wrong; they are fetched again.")),
      peer_corrupt_(Counter(registry, "oxbow_weights_peer_failures_total",
                            "Peers that gave nothing, so that the next source was asked.",
                            {{"how", "corrupt"}})),
      peer_silent_(Counter(registry, "oxbow_weights_peer_failures_total",
                           "Peers that gave nothing, so that the next source was asked.",
                           {{"how", "silent"}})),
      peer_lacking_(Counter(registry, "oxbow_weights_peer_failures_total",
                            "Peers that gave nothing, so that the next source was asked.",
                            {{"how", "lacking"}})),
      refused_(Counter(registry, "oxbow_weights_refused_total",
                       "Snapshots that were not applied: bad hash, shape or probe.")),
      announced_version_(Gauge(registry, "oxbow_weights_announced_version",
                               "Newest policy version this worker knows of.")),
      applied_version_(Gauge(registry, "oxbow_weights_applied_version",
                             "Policy version this worker samples with.")),
      lag_(Gauge(registry, "oxbow_weights_lag_versions", "Announced minus applied version.")) {}

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
