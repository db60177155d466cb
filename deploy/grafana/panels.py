# SPDX-License-Identifier: Apache-2.0
"""The panels of the four dashboards: title, what it draws, its unit, and a sentence on how to read it.

Those of a step's numbers are the rows of src/metrics/step_panels.h.
Every query selects by the dashboard's variables: q('oxbow_x', 'side="any"') is oxbow_x{run=~"$run",...,side="any"}.
A name that is not in src/metrics/exported_metrics.h is an error.
Units are Grafana's: s, bytes, Bps, percentunit (a share of 1), short (a count), none.
"""
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools"))
from metric_names import read_names, read_panels  # noqa: E402

NAMES = read_names()
LABELS = 'run=~"$run",instance=~"$instance"'
RATE = "[$__rate_interval]"
UNSCORED = 'outcome!="scored"'
SCORED = 'outcome="scored"'


def q(name, labels=""):
    if not NAMES.knows_series(name):
        raise ValueError(f"src/metrics/exported_metrics.h has no {name}")
    return f"{name}{{{LABELS}{',' + labels if labels else ''}}}"


def step(key):
    """A number of the last step."""
    if not NAMES.knows_key(key):
        raise ValueError(f"src/metrics/step_metrics.h has no {key}")
    return q("oxbow_step", f'key="{key}"')


def rate(name, labels=""):
    return f"rate({q(name, labels)}{RATE})"


def mean(name, by="run"):
    """Mean observation of a histogram."""
    return f"sum by ({by}) ({rate(name + '_sum')}) / sum by ({by}) ({rate(name + '_count')})"


def quantile(share, name, by="run"):
    return f"histogram_quantile({share}, sum by ({by}, le) ({rate(name + '_bucket')}))"


def p50_p95(name, by="run", legend="{{run}}"):
    return [(quantile(0.5, name, by), f"p50 {legend}"), (quantile(0.95, name, by), f"p95 {legend}")]


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    queries: list
    description: str
    kind: str = "timeseries"
    width: int = 8
    low: float | None = None
    high: float | None = None
    stacked: bool = False


def stat(title, unit, query, description):
    return Panel(title, unit, [(query, "{{run}}")], description, kind="stat", width=4)


def share(title, queries, description, **more):
    return Panel(title, "percentunit", queries, description, low=0, high=1, **more)


COLLAPSED = "collapsed"  # A row that only some runs have data for: it is shut until somebody opens it.


@dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    description: str
    rows: list = field(default_factory=list)  # (title, panels) or (title, panels, COLLAPSED)


UNITS = {"share": "percentunit", "s": "s", "count": "short", "entries": "short", "groups": "short", "1/s": "short"}


def family_query(row):
    """All numbers of a family; others whose key has its form are left out."""
    others = [other.name for other in NAMES.step if other is not row and re.fullmatch(row.pattern, other.name)]
    form = re.sub(r"\\[dw]\+", ".+", row.pattern)
    return q("oxbow_step", ",".join([f'key=~"{form}"', *(f'key!="{name}"' for name in others)]))


def step_panel(row):
    """A panel of a row of src/metrics/step_panels.h."""
    queries = []
    for label, number in row.curves:
        if not label:
            queries.append((family_query(number), "{{key}} {{run}}"))
        else:
            queries.append((step(number.name), f"{label} {{{{run}}}}" if len(row.curves) > 1 else "{{run}}"))
    bounds = {"Share": {"low": 0, "high": 1}, "FromZero": {"low": 0}, "Small": {"low": 0}}
    return Panel(row.title, UNITS.get(row.curves[0][1].unit, "none"), queries, row.how_to_read, **bounds.get(row.scale, {}))


def step_panels(part, rare=False):
    return [step_panel(row) for row in read_panels(NAMES) if row.part == part and row.rare == rare]


TRAINING = Dashboard("oxbow-training", "oxbow: Training health", "Does the policy learn, and is the learning sound?", [
    ("Now", [
        stat("Policy version", "short", q("oxbow_learner_policy_version"),
             "Optimiser updates so far. It must rise; if not, look at time by phase."),
        stat("Held-out reward", "none", step("eval/reward_mean"),
             "Mean weighted reward of prompts that are never trained, drawn with the averaged weights. The number the run is for."),
        stat("Samples a second", "short", step("throughput/samples_per_s"),
             "Trained samples over the time of the last step. Compare with the run's own past, not with another model."),
        stat("Workers", "short", q("oxbow_learner_workers"),
             "Connected rollout workers. 0 means that the learner waits."),
        stat("Groups without signal", "percentunit", step("train/reward_zero_std_ratio"),
             "Share of groups of the last step whose rewards are all equal. Near 1 there is nothing to learn from."),
        stat("From the base model", "none", step("eval/base_distance"),
             "Distance of held-out pictures from those of step 0, of the same noise. 1: as far as another prompt's pictures. Look at them."),
    ]),
    ("Does it learn, without cheating?", [
        *step_panels("Learning"),
        Panel("Training minus held-out", "none", [
            (f'{step("train/reward_mean")} - on (run, instance) {step("eval/reward_mean")}', "{{run}}")],
            "The gap between the two weighted sums. Samples are drawn with noise and evaluations without, so a steady gap is no news; a widening one is."),
    ]),
    ("Learning: numbers of some runs", step_panels("Learning", rare=True), COLLAPSED),
    ("Is the update healthy?", step_panels("Update")),
    ("Update: numbers of some runs", step_panels("Update", rare=True), COLLAPSED),
    ("Where does the time go?", [
        Panel("Time by phase", "s", [
            (f'{rate("oxbow_learner_phase_seconds_total")} / on (run, instance) group_left {rate("oxbow_learner_step_duration_seconds_count")}',
             "{{phase}} {{run}}")],
            "Seconds of a mean step by phase. Much waiting: workers are the slower side. Much updating: the learner is.", stacked=True, low=0),
        *step_panels("Time"),
        Panel("Step duration", "s", p50_p95("oxbow_learner_step_duration_seconds"),
              "Wall time of a learner step. A p95 far above the median is evaluations, checkpoints or stragglers.", low=0),
        Panel("Checkpoints", "bytes", [(q("oxbow_learner_checkpoint_bytes"), "{{run}}")],
              "Size of the newest checkpoint. It is written checkpoint.keep + 1 times at most.", low=0),
        Panel("Memory", "bytes", [(q("process_resident_memory_bytes", 'job="learner"'), "{{instance}}")],
              "Resident memory of the learner's ranks. It is flat after the first steps.", low=0),
        Panel("Processor", "none", [(rate("process_cpu_seconds_total", 'job="learner"'), "{{instance}}")],
              "Cores in use by the learner. Torch has one thread; more than 1 is RPC beside it.", low=0),
    ]),
    ("Several learner ranks", step_panels("Time", rare=True), COLLAPSED),
])

REPLAY = Dashboard("oxbow-replay", "oxbow: Replay buffer", "What is kept, how old it is, and whether the disk keeps up.", [
    ("Content", [
        Panel("Entries", "short", [
            (q("oxbow_replay_entries"), "live {{run}}"), (q("oxbow_replay_capacity"), "fit {{run}}"),
            (q("oxbow_replay_retired_entries"), "held for a step {{run}}")],
            "Live entries, one per prompt at most. It grows to the number of prompts or to what fits; empty while training goes on is an alert.", low=0),
        Panel("Entries by table", "short", [(q("oxbow_replay_table_entries"), "{{table}} {{run}}")],
              "`best` is the replay buffer itself; the others are queues of an adapted run.", low=0),
        Panel("Size", "bytes", [
            (q("oxbow_replay_bytes"), "live {{run}}"), (q("oxbow_replay_disk_bytes"), "files {{run}}")],
            "Files are larger than what lives in them until compaction has caught up.", low=0),
        Panel("Age of entries", "none", [
            (q("oxbow_replay_entry_age_mean_steps"), "mean {{run}}"),
            (q("oxbow_replay_entry_age_max_steps"), "oldest {{run}}")],
            "Learner steps since the trajectory was drawn. A mean that rises by one a step means that nothing better comes in.", low=0),
        Panel("Decayed priority", "none", [
            (q("oxbow_replay_priority_p90"), "p90 {{run}}"), (q("oxbow_replay_priority_p50"), "median {{run}}"),
            (q("oxbow_replay_priority_p10"), "p10 {{run}}"), (q("oxbow_replay_priority_min"), "lowest {{run}}")],
            "Rewards after decay by age. The lowest is what a newcomer must beat when the buffer is full; all falling together means that it grows old."),
        Panel("Reward of entries", "none", [
            (q("oxbow_replay_reward_mean"), "raw {{run}}"), (q("oxbow_replay_priority_mean"), "decayed {{run}}")],
            "Mean reward of what is kept, before and after decay. Raw is above the training reward: these are the best of their groups."),
    ]),
    ("In and out", [
        Panel("Offers by outcome", "short", [(rate("oxbow_replay_offers_total"), "{{outcome}} {{run}}")],
              "Entries offered a second. Inserted at first, then replaced and rejected_lower; rejected_invalid should be 0.", low=0, stacked=True),
        Panel("Entries drawn and used", "short", [
            (rate("oxbow_replay_drawn_entries_total"), "drawn {{run}}"), (rate("oxbow_replay_uses_total"), "trained {{run}}")],
            "A second. Drawn but not trained: heads that do not fit, or steps that did not commit.", low=0),
        Panel("Age of used entries", "none", [
            (mean("oxbow_replay_staleness_steps"), "mean {{run}}"),
            (quantile(0.95, "oxbow_replay_staleness_steps"), "p95 {{run}}")],
            "Age of entries, in learner steps, when a committed step trained on them.", low=0),
        Panel("Ages when used", "none", [
            (f'sum by (le) (increase({q("oxbow_replay_staleness_steps_bucket")}{RATE}))', "{{le}}")],
            "How many were used at which age. Mass that wanders upwards is a buffer that is not renewed.", kind="heatmap"),
        Panel("Uses of an entry", "none", [(q("oxbow_replay_entry_uses_mean"), "{{run}}")],
              "Mean uses of live entries. High and rising: few entries are trained over and over.", low=0),
        Panel("Heads that were not there", "short", [
            (rate("oxbow_learner_heads_missing_total"), "missing {{run}}"),
            (rate("oxbow_learner_heads_refused_total"), "refused: {{reason}} {{run}}")],
            "Groups a second that were planned with a replayed head and ran without, and entries that do not fit the run. Should be 0.", low=0),
    ]),
    ("Disk", [
        Panel("RocksDB stalls", "percentunit", [
            (rate("oxbow_replay_stall_seconds_total"), "held back {{instance}}"),
            (q("oxbow_replay_writes_stopped"), "stopped {{instance}}")],
            "Share of time for which writes were held back for compaction; 1 while they are stopped. Should be 0.", low=0),
        Panel("Compaction to do", "bytes", [(q("oxbow_replay_compaction_pending_bytes"), "{{instance}}")],
              "What RocksDB has yet to compact, as it estimates. Peaks are ordinary, a slope is not.", low=0),
        Panel("Duration of offers", "s", p50_p95("oxbow_replay_offer_duration_seconds"),
              "From the first byte to the answer, fsync included. The learner waits for it once a step.", low=0),
        Panel("Write and fsync of the log", "s", p50_p95("oxbow_replay_wal_sync_duration_seconds"),
              "The disk's part of an offer. Tens of milliseconds are a slow or shared disk.", low=0),
        Panel("Bytes offered and read", "Bps", [
            (rate("oxbow_replay_offered_bytes_total"), "offered {{run}}"), (rate("oxbow_replay_read_bytes_total"), "read {{run}}")],
            "What goes over the network and to the disk. Read are latents of heads, once per replayed group.", low=0),
        Panel("Room on the disk", "bytes", [(q("oxbow_disk_available_bytes"), "{{use}} {{instance}}")],
              "What can still be written where the run and the store are. A slope that meets 0 within four hours is an alert.", low=0),
    ]),
    ("Health", [
        Panel("Attached", "none", [(q("oxbow_learner_buffer_attached"), "{{run}}")],
              "1 while the buffer answers the learner. 0: the run goes on without, or has none.", low=0, high=1),
        Panel("Failed calls", "short", [
            (rate("oxbow_replay_failed_calls_total"), "at the buffer {{run}}"),
            (rate("oxbow_learner_buffer_failures_total"), "at the learner: {{call}} {{run}}"),
            (rate("oxbow_learner_buffer_overruns_total"), "steps without it for want of time: {{run}}")],
            "A second. At the learner alone: calls that never arrived. Should be 0.", low=0),
        Panel("Steps whose offers were lost", "short", [(q("oxbow_learner_buffer_commits_dropped_total"), "{{run}}")],
              "Since the learner started: the buffer was away for longer than the backlog lasts, or refused them.", low=0),
    ]),
])

ROLLOUTS = Dashboard("oxbow-rollouts", "oxbow: Rollouts and weights", "Who samples how fast, with which weights.", [
    ("Sampling", [
        Panel("Images a second", "short", [
            (f'sum by (run) ({rate("oxbow_rollout_samples_total")})', "all {{run}}"),
            (rate("oxbow_rollout_samples_total"), "{{instance}}")],
            "Trajectories sampled, in all and by worker. One worker far below its equals is a slow machine.", low=0),
        share("Idle", [(rate("oxbow_rollout_idle_seconds_total"), "{{instance}}")],
              "Share of time a worker waited for leases or weights. High: more workers than the learner can use."),
        Panel("Duration of a batch", "s", p50_p95("oxbow_rollout_batch_duration_seconds", "instance", "{{instance}}"),
              "Denoising and decoding of one batch of leased groups. New weights are swapped in between batches only.", low=0),
        Panel("Waiting for scores", "s", p50_p95("oxbow_rollout_reward_duration_seconds"),
              "From asking reward servers about a group to its last score. It overlaps with the next batch until it is longer than one.", low=0),
        Panel("Delivery of a group", "s", p50_p95("oxbow_rollout_delivery_duration_seconds"),
              "From the first byte to the learner's answer. It grows when the learner grants no credit: its memory is full of groups.", low=0),
        Panel("Lines lost", "short", [(f'increase({q("oxbow_rollout_reconnects_total")}{RATE})', "{{instance}}")],
              "Times a worker lost the learner and came back. One each after a restart of the learner; more is the network.", low=0),
    ]),
    ("Leases", [
        Panel("Groups by state", "short", [(q("oxbow_learner_groups"), "{{state}} {{run}}")],
              "Pending have no worker, running have one, ready wait to be trained. Pending high: too few workers. Ready high: the learner is the slower side.", low=0, stacked=True),
        Panel("Leases by what became of them", "short", [(rate("oxbow_learner_leases_total"), "{{event}} {{run}}")],
              "A second. Expired: workers that died or stalled. Speculated: stragglers that were given to a second worker. Failed: workers that gave up.", low=0),
        Panel("Results by outcome", "short", [(rate("oxbow_learner_results_total"), "{{outcome}} {{run}}")],
              "Groups that arrived a second. All but accepted is work thrown away; invalid should be 0.", low=0),
        Panel("Groups of workers by outcome", "short", [(rate("oxbow_rollout_groups_total"), "{{outcome}} {{instance}}")],
              "The same as each worker sees it. Failures of one worker alone are that machine's.", low=0),
        Panel("Staleness of fresh samples", "none", [
            (mean("oxbow_learner_sample_staleness_steps"), "mean {{run}}"),
            (q("oxbow_learner_staleness_budget_steps"), "allowed {{run}}")],
            "Learner steps between the weights that made a sample and its update, and what off_policy.staleness_max allows. 0 is on-policy.", low=0),
        Panel("Experience in the learner's memory", "bytes", [(q("oxbow_learner_sink_bytes"), "{{run}}")],
              "Groups not yet trained and credit granted for more, bounded by services.sink_bytes_max. At the bound workers wait.", low=0),
    ]),
    ("Weights", [
        Panel("Versions", "short", [
            (q("oxbow_learner_published_version"), "published {{run}}"),
            (q("oxbow_rollout_policy_version"), "{{instance}}")],
            "Version each worker samples with, beside what is published. The lines should overlap; an alert fires for one that stays behind.", low=0),
        Panel("Versions behind", "short", [(q("oxbow_weights_lag_versions"), "{{instance}}")],
              "Announced minus applied, in optimiser updates. Back at 0 after each publication, at the latest after a batch.", low=0),
        Panel("Age of the newest weights", "s", [
            (f'time() - ({q("oxbow_weights_published_timestamp_seconds")} > 0)', "{{run}}")],
            "Time since weights were published last: a saw tooth as high as a step. No teeth: the run is stuck.", low=0),
        Panel("Publishing", "s", p50_p95("oxbow_weights_publish_seconds"),
              "Time to hash, cut and announce a snapshot, beside training.", low=0),
        Panel("Fetching", "s", p50_p95("oxbow_weights_fetch_seconds", "instance", "{{instance}}"),
              "From a manifest to verified tensors. It should stay under a step.", low=0),
        Panel("Applying", "s", p50_p95("oxbow_weights_apply_seconds", "instance", "{{instance}}"),
              "Loading verified tensors and running the probe. No sampling meanwhile.", low=0),
        Panel("Bytes fetched by source", "Bps", [(f'sum by (run, source) ({rate("oxbow_weights_fetched_bytes_total")})', "{{source}} {{run}}")],
              "With two workers or more most should come from peers (or a broadcast), not from the learner.", low=0, stacked=True),
        Panel("Copies sent by the learner", "none", [(q("oxbow_weights_egress_copies"), "{{run}}")],
              "Bytes sent since the newest snapshot over its changed bytes: at most services.weight_fanout when workers relay.", low=0),
        Panel("Weights that were not accepted", "short", [
            (rate("oxbow_weights_refused_total"), "refused {{instance}}"),
            (rate("oxbow_weights_corrupt_chunks_total"), "corrupt chunks {{instance}}"),
            (rate("oxbow_weights_peer_failures_total"), "peer {{how}} {{instance}}"),
            (rate("oxbow_weights_withheld_total"), "withheld: {{reason}} {{run}}")],
            "A second; should be 0. Refused: wrong hash, shape or probe, nobody samples with those. Withheld: the learner did not publish.", low=0),
        Panel("Broadcast rounds", "short", [(rate("oxbow_weights_broadcast_rounds_total"), "{{outcome}} {{run}}")],
              "Publications by broadcast a second, with publish.transport: broadcast. Failed and skipped ones went by relay.", low=0),
    ]),
    ("Processes", [
        Panel("Memory of workers", "bytes", [(q("process_resident_memory_bytes", 'job="rollout"'), "{{instance}}")],
              "Resident memory. Flat after the first batches.", low=0),
        Panel("Running since", "dateTimeAsIso", [(f'{q("process_start_time_seconds")} * 1000', "{{job}} {{instance}}")],
              "When each process started. A step in a line is a restart.", width=16),
    ]),
])

REWARDS = Dashboard("oxbow-rewards", "oxbow: Rewards", "How fast and how reliably images are scored.", [
    ("Calls", [
        Panel("Score calls", "short", [
            (f'sum by (run, instance, outcome) ({rate("oxbow_reward_request_duration_seconds_count")})', "{{outcome}} {{instance}}")],
            "Calls a second by server. One server alone at work means that clients do not find the others.", low=0),
        Panel("Latency", "s", [*p50_p95("oxbow_reward_request_duration_seconds", "instance", "{{instance}}"),
                               (quantile(0.99, "oxbow_reward_request_duration_seconds", "instance"), "p99 {{instance}}")],
              "Duration of a Score call, which streams a group's images. Longer than a worker's batch: sampling waits for rewards.", low=0),
        Panel("Images per batch", "short", [(mean("oxbow_reward_batch_items", "instance"), "{{instance}}")],
              "Mean images per message. Far below reward_server --batch-max leaves a GPU idle.", low=0),
        Panel("Wait for a batch", "s", p50_p95("oxbow_reward_queue_seconds", "reward", "{{reward}}"),
              "How long the oldest image of a batch waited for its scorer. Far above the wait for a full batch: the scorer is too slow, or the servers too few.", low=0),
        Panel("Scoring of a batch", "s", p50_p95("oxbow_reward_scoring_seconds", "reward", "{{reward}}"),
              "Time in the scorer for one batch, by reward.", low=0),
        Panel("Batch fill", "percentunit", [(mean("oxbow_reward_batch_fill_ratio", "reward"), "{{reward}}")],
              "Images of a batch over what the scorer takes. Low with a long wait: raise --batch-wait-ms or let fewer servers share the work.", low=0),
        share("Scores from the cache", [
            (f'sum by (run, reward) ({rate("oxbow_reward_cache_hits_total")}) / sum by (run, reward) ({rate("oxbow_reward_items_total", SCORED)})',
             "{{reward}} {{run}}")],
            "Share of scores that were kept from before. 0 without cache_items; near 0 with it: images do not come again."),
        Panel("Observed rewards that failed", "short", [(rate("oxbow_rollout_observed_failed_total"), "{{reward}} {{instance}}")],
              "Samples a second that an observed reward gave no score. They are trained on all the same; the reward's own curve has gaps.", low=0),
        Panel("As workers see it", "s", p50_p95("oxbow_rollout_reward_duration_seconds"),
              "From asking to the last score of a group, retries and network included. Far above the latency: calls queue or fail over.", low=0),
    ]),
    ("Failures", [
        Panel("Images by outcome", "short", [(rate("oxbow_reward_items_total"), "{{reward}} {{outcome}} {{instance}}")],
              "A second. Invalid: image or prompt does not fit the reward. Failed: the scorer's error, or a score that is not finite.", low=0),
        share("Images without a score", [
            (f'sum by (run, reward) ({rate("oxbow_reward_items_total", UNSCORED)}) / sum by (run, reward) ({rate("oxbow_reward_items_total")})',
             "{{reward}} {{run}}")],
            "They are dropped or fail their group and never count as 0. Over 1 % is an alert."),
        Panel("Errors by kind", "short", [(f'sum by (run, reward, kind) ({rate("oxbow_reward_errors_total")})', "{{reward}} {{kind}} {{run}}")],
              "Images a second without a score. Of a server or judge elsewhere: busy, timeout and unavailable pass or are its load; refused and nonsense need a person.", low=0),
        Panel("Rewards that serve", "short", [(q("oxbow_reward_serving"), "{{reward}} {{instance}}")],
              "1 serves, 0 broken: the last three batches gave no score at all. Each reward of each server has its own health.", low=0),
        Panel("Evaluations without a score", "short", [(q("oxbow_learner_evaluation_failures_total"), "{{run}}")],
              "Since the learner started. Training goes on; the held-out curve has a gap.", low=0),
    ]),
    ("Scores", [
        Panel("Mean score", "none", [
            (f'sum by (run, reward) ({rate("oxbow_reward_score_sum")}) / sum by (run, reward) ({rate("oxbow_reward_score_count")})',
             "{{reward}} {{run}}")],
            "Of all images that were scored, evaluations included, in the reward's own units."),
        Panel("Distribution of scores", "none", [
            (f'sum by (le) (increase({q("oxbow_reward_score_bucket")}{RATE}))', "{{le}}")],
            "How many images got which score, all rewards together; choose an instance that serves one. All in one row: the reward tells nothing apart.", kind="heatmap", width=16),
    ]),
    ("Processes", [
        Panel("Memory", "bytes", [(q("process_resident_memory_bytes", 'job="reward"'), "{{instance}}")],
              "Resident memory of reward servers. Flat after the first calls.", low=0),
        Panel("Processor", "none", [(rate("process_cpu_seconds_total", 'job="reward"'), "{{instance}}")],
              "Cores in use by a reward server; at its limit, start more of them.", low=0),
    ]),
])

DASHBOARDS = [TRAINING, REPLAY, ROLLOUTS, REWARDS]
