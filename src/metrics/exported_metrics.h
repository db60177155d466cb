// SPDX-License-Identifier: Apache-2.0
// The metrics that processes serve on /metrics for Prometheus: name, labels and help of each.
//
// The type of a constant is the type of the metric; its name is the metric's in CamelCase, without
// "oxbow_". The unit is the last word of the name (_seconds, _bytes, _steps), in counters the word
// before _total; without a unit the metric counts what its help says. telemetry/metrics.h makes a
// metric from its constant.
//
// tools/metric_names.py prints them as a table (`--print`), also for the site, and checks that no
// C++ file outside of tests spells a name, that every row is used, and that tests, dashboards and
// alerts name only metrics that are here.
#pragma once

namespace oxbow::exported {

struct Metric {
  const char* name;
  const char* labels;  // "outcome: ok, error; reward: name": each label and its values.
  const char* help;    // Plain text: /metrics shows it.
};
struct Counter : Metric {};
struct Gauge : Metric {};
struct Histogram : Metric {};

// clang-format off
// Every process.
inline constexpr Gauge kBuildInfo{
    "oxbow_build_info", "version", "Constant 1; the labels say what is running."};
inline constexpr Gauge kProcessResidentMemoryBytes{
    "process_resident_memory_bytes", "", "Resident memory size in bytes."};
inline constexpr Counter kProcessCpuSecondsTotal{
    "process_cpu_seconds_total", "", "Total user and system CPU time spent in seconds."};
inline constexpr Gauge kProcessStartTimeSeconds{
    "process_start_time_seconds", "", "Start time of the process since unix epoch in seconds."};
inline constexpr Gauge kDiskAvailableBytes{
    "oxbow_disk_available_bytes", "use: replay, run",
    "Bytes that can still be written where this process keeps files, by use."};
inline constexpr Gauge kDiskSizeBytes{
    "oxbow_disk_size_bytes", "use",
    "Bytes of the file system where this process keeps files, by use."};

inline constexpr Counter kRpcRefusedTotal{
    "oxbow_rpc_refused_total",
    "method: Service/Method, unknown; reason: busy, fleet, method, revoked, role, worker_id",
    "Refused calls: for want of room (busy), or because a certificate does not allow them."};

// The learner.
inline constexpr Gauge kStep{
    "oxbow_step", "key: of metrics.jsonl",
    "Each number of the last step, by its key in metrics.jsonl; those of evaluations are of the "
    "last evaluation."};
inline constexpr Counter kLearnerLeasesTotal{
    "oxbow_learner_leases_total", "event: expired, failed, granted, speculated, superseded",
    "Leases by what became of them."};
inline constexpr Counter kLearnerResultsTotal{
    "oxbow_learner_results_total", "outcome: accepted, duplicate, fenced, invalid, superseded",
    "Groups that arrived, by outcome."};
inline constexpr Counter kLearnerResultBytesTotal{
    "oxbow_learner_result_bytes_total", "", "Latent bytes that arrived."};
inline constexpr Counter kLearnerPhaseSecondsTotal{
    "oxbow_learner_phase_seconds_total",
    "phase: checkpoint, eval, log, offer, plan, publish, rewards, update, wait",
    "Time of the learner by phase."};
inline constexpr Counter kLearnerSamplesTotal{
    "oxbow_learner_samples_total", "origin: fresh, replay", "Samples trained on, by origin."};
inline constexpr Counter kLearnerStepsWithoutSamplesTotal{
    "oxbow_learner_steps_without_samples_total", "reason: no_rows, no_signal",
    "Committed learner steps that trained no sample."};
inline constexpr Counter kLearnerBufferFailuresTotal{
    "oxbow_learner_buffer_failures_total", "call: checkpoint, commit, draw, read, restore",
    "Calls to the replay buffer that failed after retries."};
inline constexpr Counter kLearnerBufferOverrunsTotal{
    "oxbow_learner_buffer_overruns_total", "",
    "Steps that used up their time for a shard of the replay buffer and went on without it."};
inline constexpr Counter kLearnerBufferCommitsDroppedTotal{
    "oxbow_learner_buffer_commits_dropped_total", "",
    "Steps whose offers were lost: the buffer was away too long or refused them."};
inline constexpr Counter kLearnerOffersTotal{
    "oxbow_learner_offers_total",
    "outcome: duplicate, inserted, rejected_invalid, rejected_lower, replaced",
    "Offers to the replay buffer by outcome."};
inline constexpr Counter kLearnerHeadsMissingTotal{
    "oxbow_learner_heads_missing_total", "",
    "Groups planned with a replayed head that ran without one."};
inline constexpr Counter kLearnerHeadsRefusedTotal{
    "oxbow_learner_heads_refused_total", "reason: no_density, schedule, size",
    "Drawn replay entries that do not fit the run or the step's window."};
inline constexpr Counter kLearnerDuplicateWorkersTotal{
    "oxbow_learner_duplicate_workers_total", "",
    "Streams of workers that were refused: another process of that id is connected."};
inline constexpr Counter kLearnerWorkerRestsTotal{
    "oxbow_learner_worker_rests_total", "",
    "Times that a worker was given no leases for a while, because it failed one after another."};
inline constexpr Counter kLearnerStreamsCutTotal{
    "oxbow_learner_streams_cut_total", "",
    "Streams of workers that were ended because they did not read what they were told."};
inline constexpr Counter kLearnerEvaluationFailuresTotal{
    "oxbow_learner_evaluation_failures_total", "", "Evaluations that could not be scored."};
inline constexpr Counter kLearnerCheckpointsTotal{
    "oxbow_learner_checkpoints_total", "", "Checkpoints written."};
inline constexpr Counter kLearnerWriteFailuresTotal{
    "oxbow_learner_write_failures_total",
    "what: checkpoint, metrics, prompts, samples, steps, weights",
    "Writes to the run's directory that failed; the learner tries them again."};
inline constexpr Counter kLearnerCheckpointCopiesTotal{
    "oxbow_learner_checkpoint_copies_total", "outcome: copied, failed",
    "Copies of checkpoints to `checkpoint.copy_to`."};
inline constexpr Gauge kLearnerGroups{
    "oxbow_learner_groups", "state: pending, ready, running", "Planned groups by state."};
inline constexpr Gauge kLearnerSinkBytes{
    "oxbow_learner_sink_bytes", "", "Bytes of un-consumed experience and granted credit."};
inline constexpr Gauge kLearnerWorkers{"oxbow_learner_workers", "", "Workers connected."};
inline constexpr Gauge kLearnerWorkersBad{
    "oxbow_learner_workers_bad", "",
    "Connected workers that failed three leases or more one after another: they rest."};
inline constexpr Gauge kLearnerWorkersWaiting{
    "oxbow_learner_workers_waiting", "", "Workers that wait for a reward server to answer."};
inline constexpr Counter kLearnerUnscoredSamplesTotal{
    "oxbow_learner_unscored_samples_total", "",
    "Samples that were dropped because a reward server answered without a score."};
inline constexpr Gauge kLearnerPromptsQuarantined{
    "oxbow_learner_prompts_quarantined", "",
    "Prompts with images to which a reward server answers without a score."};
inline constexpr Gauge kLearnerWeightsLagVersions{
    "oxbow_learner_weights_lag_versions", "",
    "Versions by which the slowest connected worker trails what is published."};
inline constexpr Gauge kLearnerPolicyVersion{
    "oxbow_learner_policy_version", "", "Optimiser updates so far."};
inline constexpr Gauge kLearnerPublishedVersion{
    "oxbow_learner_published_version", "", "Version of the newest published weights."};
inline constexpr Gauge kLearnerBufferAttached{
    "oxbow_learner_buffer_attached", "",
    "1 while all shards of the replay buffer answer, 0 while the run goes on without one."};
inline constexpr Gauge kLearnerCheckpointBytes{
    "oxbow_learner_checkpoint_bytes", "", "Size of the newest checkpoint."};
inline constexpr Gauge kLearnerCheckpointWriteSeconds{
    "oxbow_learner_checkpoint_write_seconds", "",
    "Time to write and read back the newest checkpoint, while training went on."};
inline constexpr Gauge kLearnerComplete{
    "oxbow_learner_complete", "",
    "1 from the commit of the run's last step, or once run.stop_if ends it: its processes leave."};
inline constexpr Gauge kLearnerStalenessBudgetSteps{
    "oxbow_learner_staleness_budget_steps", "", "Largest staleness that a fresh sample may have."};
inline constexpr Histogram kLearnerStepDurationSeconds{
    "oxbow_learner_step_duration_seconds", "", "Wall time of a learner step."};
inline constexpr Histogram kLearnerSampleStalenessSteps{
    "oxbow_learner_sample_staleness_steps", "",
    "Learner steps between the weights that made a fresh sample and its update."};

// Rollout workers.
inline constexpr Counter kRolloutSamplesTotal{
    "oxbow_rollout_samples_total", "", "Trajectories sampled."};
inline constexpr Counter kRolloutIdleSecondsTotal{
    "oxbow_rollout_idle_seconds_total", "", "Time the sampler waited for leases or weights."};
inline constexpr Counter kRolloutReconnectsTotal{
    "oxbow_rollout_reconnects_total", "",
    "Times the line to the learner was lost and taken up again."};
inline constexpr Counter kRolloutGroupsTotal{
    "oxbow_rollout_groups_total",
    "outcome: accepted, duplicate, failed, fenced, invalid, superseded",
    "Groups by what became of them."};
inline constexpr Gauge kRolloutPolicyVersion{
    "oxbow_rollout_policy_version", "", "Policy version in use."};
inline constexpr Gauge kRolloutGroupsInFlight{"oxbow_rollout_groups_in_flight", "", "Leases held."};
inline constexpr Histogram kRolloutBatchDurationSeconds{
    "oxbow_rollout_batch_duration_seconds", "",
    "Denoising and decoding of one batch of leased groups."};
inline constexpr Histogram kRolloutRewardDurationSeconds{
    "oxbow_rollout_reward_duration_seconds", "",
    "From asking reward servers about a group to its last score."};
inline constexpr Counter kRolloutObservedFailedTotal{
    "oxbow_rollout_observed_failed_total", "reward: name",
    "Samples that an observed reward gave no score; they are trained on all the same."};
inline constexpr Counter kRolloutConditioningBytesTotal{
    "oxbow_rollout_conditioning_bytes_total", "source: held, learner, peer",
    "Bytes of conditioning and of evaluated weights that leases name, by where they were "
    "found."};
inline constexpr Histogram kRolloutDeliveryDurationSeconds{
    "oxbow_rollout_delivery_duration_seconds", "",
    "From the first byte of a group to the learner's answer."};
inline constexpr Histogram kRolloutWeightsApplyDurationSeconds{
    "oxbow_rollout_weights_apply_duration_seconds", "",
    "Swapping verified weights in, probe included."};

// Weights: the learner publishes and broadcasts, a worker fetches, relays and applies.
inline constexpr Counter kWeightsServedBytesTotal{
    "oxbow_weights_served_bytes_total", "", "Chunk bytes sent to watchers."};
inline constexpr Counter kLearnerConditioningServedBytesTotal{
    "oxbow_learner_conditioning_served_bytes_total", "",
    "Bytes of prompts' conditioning, and of weights for evaluations, sent to workers."};
inline constexpr Counter kWeightsChangedBytesTotal{
    "oxbow_weights_changed_bytes_total", "",
    "Chunk bytes of snapshots that no retained snapshot had."};
inline constexpr Gauge kWeightsEgressCopies{
    "oxbow_weights_egress_copies", "",
    "Bytes sent since the newest snapshot, over its changed bytes: at most "
    "services.weight_fanout when workers relay."};
inline constexpr Gauge kWeightsWatchers{
    "oxbow_weights_watchers", "", "Workers that watch for weights."};
inline constexpr Gauge kWeightsPeersExcluded{
    "oxbow_weights_peers_excluded", "", "Workers that are not handed out as sources."};
inline constexpr Counter kWeightsPeerFaultsTotal{
    "oxbow_weights_peer_faults_total", "fault: corrupt, silent",
    "Workers taken out as sources, by fault."};
inline constexpr Counter kWeightsWithheldTotal{
    "oxbow_weights_withheld_total", "reason: not_finite, reward_floor",
    "Snapshots that were not published, by reason."};
inline constexpr Counter kWeightsReportsTotal{
    "oxbow_weights_reports_total", "outcome: close, equal, refused",
    "Reports of watchers, by what their probe said."};
inline constexpr Gauge kWeightsPublishedVersion{
    "oxbow_weights_published_version", "", "Newest published policy version."};
inline constexpr Gauge kWeightsPublishedTimestampSeconds{
    "oxbow_weights_published_timestamp_seconds", "",
    "When weights were published last; 0: not yet."};
inline constexpr Gauge kWeightsHeldBytes{
    "oxbow_weights_held_bytes", "", "Bytes of retained chunks, each held once."};
inline constexpr Histogram kWeightsPublishSeconds{
    "oxbow_weights_publish_seconds", "", "Time to hash, cut and announce a snapshot."};
inline constexpr Counter kWeightsBroadcastRoundsTotal{
    "oxbow_weights_broadcast_rounds_total", "outcome: whole, failed, skipped",
    "Publications to workers that can take part in broadcasts, by outcome; skipped: no broadcast "
    "group stood, or it was busy."};
inline constexpr Counter kWeightsBroadcastBytesTotal{
    "oxbow_weights_broadcast_bytes_total", "",
    "Chunk bytes broadcast, each counted once whatever the number of members."};
inline constexpr Histogram kWeightsBroadcastSeconds{
    "oxbow_weights_broadcast_seconds", "", "Time of a broadcast that reached every member."};
inline constexpr Gauge kWeightsBroadcastMembers{
    "oxbow_weights_broadcast_members", "", "Workers that get new weights by broadcast."};
inline constexpr Counter kWeightsBroadcastGroupsFailedTotal{
    "oxbow_weights_broadcast_groups_failed_total", "",
    "Broadcast groups in which not all members came together."};
inline constexpr Counter kWeightsFetchedBytesTotal{
    "oxbow_weights_fetched_bytes_total", "source: broadcast, learner, peer",
    "Chunk bytes received, by source."};
inline constexpr Counter kWeightsRelayedBytesTotal{
    "oxbow_weights_relayed_bytes_total", "", "Chunk bytes passed on to other workers."};
inline constexpr Counter kWeightsPeerFailuresTotal{
    "oxbow_weights_peer_failures_total", "how: corrupt, silent, lacking",
    "Peers that gave nothing, so that the next source was asked."};
inline constexpr Counter kWeightsCorruptChunksTotal{
    "oxbow_weights_corrupt_chunks_total", "",
    "Chunks whose hash was wrong; they are fetched again."};
inline constexpr Counter kWeightsRefusedTotal{
    "oxbow_weights_refused_total", "",
    "Snapshots that were not applied: bad hash, shape or probe."};
inline constexpr Gauge kWeightsAnnouncedVersion{
    "oxbow_weights_announced_version", "", "Newest policy version this worker knows of."};
inline constexpr Gauge kWeightsAppliedVersion{
    "oxbow_weights_applied_version", "", "Policy version this worker samples with."};
inline constexpr Gauge kWeightsLagVersions{
    "oxbow_weights_lag_versions", "", "Announced minus applied version."};
inline constexpr Histogram kWeightsFetchSeconds{
    "oxbow_weights_fetch_seconds", "", "Time from manifest to verified tensors."};
inline constexpr Histogram kWeightsApplySeconds{
    "oxbow_weights_apply_seconds", "", "Time to load verified tensors and run the probe."};

// The replay buffer.
inline constexpr Counter kReplayOfferedBytesTotal{
    "oxbow_replay_offered_bytes_total", "", "Bytes of offered entries."};
inline constexpr Counter kReplayDrawsTotal{
    "oxbow_replay_draws_total", "", "Draw calls that succeeded."};
inline constexpr Counter kReplayDrawnEntriesTotal{
    "oxbow_replay_drawn_entries_total", "", "Entries given to Draw."};
inline constexpr Counter kReplayReadBytesTotal{
    "oxbow_replay_read_bytes_total", "", "Latent bytes given to Read."};
inline constexpr Counter kReplayUsesTotal{
    "oxbow_replay_uses_total", "", "Entries that a committed step trained on."};
inline constexpr Counter kReplayEvictedTotal{
    "oxbow_replay_evicted_total", "", "Entries that the learner threw out."};
inline constexpr Counter kReplayDamagedEntriesTotal{
    "oxbow_replay_damaged_entries_total", "",
    "Entries that left because their stored bytes were damaged."};
inline constexpr Counter kReplayFailedCallsTotal{
    "oxbow_replay_failed_calls_total", "", "Calls that ended in an error."};
inline constexpr Counter kReplayOffersTotal{
    "oxbow_replay_offers_total",
    "outcome: duplicate, inserted, rejected_invalid, rejected_lower, replaced",
    "Entries offered to the table best, by outcome."};
inline constexpr Counter kReplayTableOffersTotal{
    "oxbow_replay_table_offers_total", "table; outcome", "Entries offered to a table, by outcome."};
inline constexpr Counter kReplayTableEvictedTotal{
    "oxbow_replay_table_evicted_total", "table", "Entries that left a queue for room or age."};
inline constexpr Gauge kReplayTableEntries{
    "oxbow_replay_table_entries", "table", "Entries of a table."};
inline constexpr Gauge kReplayTableBytes{
    "oxbow_replay_table_bytes", "table", "Bytes of a table's entries."};
inline constexpr Gauge kReplayEntries{"oxbow_replay_entries", "", "Live entries."};
inline constexpr Gauge kReplayCapacity{"oxbow_replay_capacity", "", "Entries that fit."};
inline constexpr Gauge kReplayRetiredEntries{
    "oxbow_replay_retired_entries", "",
    "Entries no longer live but held for a step that drew them."};
inline constexpr Gauge kReplayBytes{"oxbow_replay_bytes", "", "Bytes of live entries."};
inline constexpr Gauge kReplayDiskBytes{
    "oxbow_replay_disk_bytes", "", "Bytes of table and blob files."};
inline constexpr Gauge kReplayWritesStopped{
    "oxbow_replay_writes_stopped", "",
    "1 while RocksDB takes no writes until compaction has caught up."};
inline constexpr Gauge kReplayCompactionPendingBytes{
    "oxbow_replay_compaction_pending_bytes", "",
    "Bytes that RocksDB has yet to compact, as it estimates."};
inline constexpr Counter kReplayStallSecondsTotal{
    "oxbow_replay_stall_seconds_total", "",
    "Time for which RocksDB held writes back for compaction."};
inline constexpr Gauge kReplayStep{"oxbow_replay_step", "", "Last committed learner step + 1."};
inline constexpr Gauge kReplayRewardMean{
    "oxbow_replay_reward_mean", "", "Mean raw reward of live entries."};
inline constexpr Gauge kReplayPriorityMin{
    "oxbow_replay_priority_min", "", "Lowest decayed priority."};
inline constexpr Gauge kReplayPriorityMean{
    "oxbow_replay_priority_mean", "", "Mean decayed priority."};
inline constexpr Gauge kReplayPriorityP10{
    "oxbow_replay_priority_p10", "",
    "Decayed priority that a tenth of live entries is at or below."};
inline constexpr Gauge kReplayPriorityP50{
    "oxbow_replay_priority_p50", "", "Median decayed priority."};
inline constexpr Gauge kReplayPriorityP90{
    "oxbow_replay_priority_p90", "",
    "Decayed priority that nine tenths of live entries are at or below."};
inline constexpr Gauge kReplayEntryAgeMeanSteps{
    "oxbow_replay_entry_age_mean_steps", "", "Mean age of live entries."};
inline constexpr Gauge kReplayEntryAgeMaxSteps{
    "oxbow_replay_entry_age_max_steps", "", "Age of the oldest live entry."};
inline constexpr Gauge kReplayEntryUsesMean{
    "oxbow_replay_entry_uses_mean", "", "Mean uses of live entries."};
inline constexpr Histogram kReplayOfferDurationSeconds{
    "oxbow_replay_offer_duration_seconds", "", "Duration of Offer calls that succeeded."};
inline constexpr Histogram kReplayWalSyncDurationSeconds{
    "oxbow_replay_wal_sync_duration_seconds", "",
    "Write and fsync of the log, per Offer that stored something."};
inline constexpr Histogram kReplayStalenessSteps{
    "oxbow_replay_staleness_steps", "",
    "Age of entries when a committed step used them, in steps."};

// Reward servers.
inline constexpr Counter kRewardItemsTotal{
    "oxbow_reward_items_total", "outcome: failed, invalid, scored; reward: name",
    "Images by reward and outcome: scored, invalid (image or prompt does not fit), failed "
    "(the scorer gave an error or no finite number)."};
inline constexpr Counter kRewardCacheHitsTotal{
    "oxbow_reward_cache_hits_total", "reward: name",
    "Scored images whose score was kept from before (cache_items); they count as scored, too."};
inline constexpr Counter kRewardErrorsTotal{
    "oxbow_reward_errors_total",
    "kind: busy, internal, invalid, nonsense, refused, timeout, unavailable; reward: name",
    "Images without a score, by reward and kind. Of a server or judge elsewhere: busy (it said so "
    "until the deadline), nonsense (its answer has no number), refused (its address or key is "
    "wrong), timeout, unavailable (nobody answers)."};
inline constexpr Histogram kRewardScore{
    "oxbow_reward_score", "reward: name", "Scores given, by reward, in the reward's own units."};
inline constexpr Histogram kRewardRequestDurationSeconds{
    "oxbow_reward_request_duration_seconds", "outcome: error, ok",
    "Duration of Score calls, by outcome of the call."};
inline constexpr Histogram kRewardQueueSeconds{
    "oxbow_reward_queue_seconds", "reward: name",
    "How long the oldest item of a batch waited for its scorer."};
inline constexpr Histogram kRewardScoringSeconds{
    "oxbow_reward_scoring_seconds", "reward: name", "Scoring of one batch, by reward."};
inline constexpr Histogram kRewardBatchFillRatio{
    "oxbow_reward_batch_fill_ratio", "reward: name",
    "Items of a batch over the scorer's limit; only of scorers that gain by batches."};
inline constexpr Gauge kRewardServing{
    "oxbow_reward_serving", "reward: name",
    "1 while the reward's health is SERVING; 0 once its last batches gave no score at all."};
inline constexpr Histogram kRewardBatchItems{
    "oxbow_reward_batch_items", "", "Images per batch received."};
// clang-format on

}  // namespace oxbow::exported
