// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/fleet_checks.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/run/run_display.h"
#include "cli/terminal.h"
#include "core/lease/worker_book.h"
#include "metrics/exported_metrics.h"
#include "metrics/step_metrics.h"
#include "services/learner/record/run_progress.h"

namespace oxbow::cli {
namespace {

constexpr double kSkewWarn = 1, kSkewFail = 60;              // Seconds.
constexpr double kStepWarn = 60, kStepFail = 600;            // Without a step, at least.
constexpr double kStepsWarn = 10, kStepsFail = 50;           // And in step durations.
constexpr double kRefusedWarn = 0.001, kRefusedFail = 0.05;  // Share of images.
constexpr double kFailingLong = 60;                          // Seconds without a step.
constexpr uint64_t kDiskLeast = uint64_t{128} << 20;

class FleetJudge {
 public:
  explicit FleetJudge(const FleetFacts& facts) : facts_(facts) {}

  Checks Run() {
    for (const ServiceFacts& service : facts_.services) Health(service);
    for (const auto& [name, trouble] : facts_.down) {
      Add(absl::StrCat("process ", name), Grade::kFail, trouble,
          "mend what its last words name; oxbow train starts it again by itself");
    }
    Clocks();
    if (facts_.status.has_value()) {
      LastStep(*facts_.status);
      Numbers(*facts_.status);
      Staleness(*facts_.status);
      Workers(*facts_.status);
      Leases(*facts_.status);
      Failures(*facts_.status);
      Notices(*facts_.status);
      Quarantined(*facts_.status);
      Attached(*facts_.status);
    }
    for (const RewardCounts& counts : facts_.rewards) Rewards(counts);
    for (const v1::InfoResponse& buffer : facts_.buffers) Buffer(buffer);
    return std::move(checks_);
  }

 private:
  void Add(std::string name, Grade verdict, std::string found, std::string fix = "") {
    if (verdict == Grade::kOk) fix.clear();
    checks_.push_back({"fleet", std::move(name), verdict, std::move(found), std::move(fix)});
  }

  void Health(const ServiceFacts& service) {
    const std::string name = absl::StrCat(service.name, " ", service.endpoint);
    switch (service.state) {
      case ServiceFacts::State::kServing:
        return Add(name, Grade::kOk,
                   absl::StrFormat("serving, answers in %.1f ms", 1e3 * service.round_trip_s));
      case ServiceFacts::State::kNotServing:
        return Add(name, Grade::kWarn, "up, but not serving",
                   "it starts or drains: see its log; if it stays so, restart it");
      case ServiceFacts::State::kSilent:
        return Add(name, Grade::kFail, absl::StrCat("does not answer: ", service.why),
                   service.name == "learner"
                       ? "has the run ended? oxbow train RUN.yaml --resume goes on from the last "
                         "checkpoint"
                       : "see its log; start it again with the same flags, the run takes it up by "
                         "itself");
      case ServiceFacts::State::kRefused:
        return Add(name, Grade::kFail, absl::StrCat("refuses this command: ", service.why),
                   "use a certificate of the role operator, --tls-cert and --tls-key "
                   "(docs/operations.md#tls)");
    }
  }

  void Clocks() {
    const ServiceFacts* worst = nullptr;
    double most = -1;
    for (const ServiceFacts& service : facts_.services) {
      if (!service.clock_offset_s.has_value()) continue;
      const double sure = std::abs(*service.clock_offset_s) - service.round_trip_s / 2;
      if (sure > most) {
        most = sure;
        worst = &service;
      }
    }
    if (worst == nullptr) return;
    Add("clocks", Above(most, kSkewWarn, kSkewFail),
        absl::StrFormat("largest difference to this machine %+.3f s (%s)", *worst->clock_offset_s,
                        worst->name),
        "synchronise the clocks (chrony): logs of several machines do not line up");
  }

  void LastStep(const v1::StatusResponse& status) {
    const std::optional<double> known = Metric(status, metric::kTimeStepS);
    const double step_s = known.value_or(0);
    const double ago = status.seconds_since_step();
    // The duration of the first step after a start, or of an evaluation, is unknown.
    const bool may_last = !known.has_value() || status.phase() == "evaluating";
    const bool late = ago > std::max(kStepWarn, kStepsWarn * step_s);
    const bool stuck = !may_last && ago > std::max(kStepFail, kStepsFail * step_s);
    const Grade verdict = stuck ? Grade::kFail : late ? Grade::kWarn : Grade::kOk;
    std::string fix = absl::StrCat("the learner is ", status.phase(), ": ");
    absl::StrAppend(&fix, status.workers().empty()
                              ? "start a worker: rollout_worker --learner HOST:PORT"
                              : "look at the workers below and at its log");
    const std::string since = known.has_value()
                                  ? absl::StrFormat("%.1f s ago (a step takes %.1f s)", ago, step_s)
                                  : absl::StrFormat("none since the start %.1f s ago", ago);
    Add("last step", verdict,
        absl::StrFormat("step %d of %d, %s, %s", status.learner_step(), status.steps_total(), since,
                        status.phase()),
        fix);
  }

  // A broken number is null in metrics.jsonl and NaN here.
  void Numbers(const v1::StatusResponse& status) {
    std::string broken;
    for (const v1::NamedValue& metric : status.metrics()) {
      if (!std::isfinite(metric.value())) {
        absl::StrAppend(&broken, broken.empty() ? "" : ", ", metric.name());
      }
    }
    if (!broken.empty()) {
      Add("numbers", Grade::kFail, absl::StrCat("not finite: ", broken),
          "oxbow rollback RUN --to an earlier step, lower optimizer.learning_rate");
    }
    // Where ratios are exact, no limit is.
    const double tolerance =
        facts_.ratio_tolerance == 0
            ? 0
            : Metric(status, metric::kTrainOnpolicyRatioLimit).value_or(facts_.ratio_tolerance);
    if (const auto error = Metric(status, metric::kTrainOnpolicyRatioErr);
        error && *error > tolerance) {
      Add("on-policy ratio", Grade::kWarn, absl::StrFormat("off from 1 by %.3g", *error),
          "worker and learner compute differently: same binaries, device and precision "
          "everywhere");
    }
    if (Metric(status, metric::kTrainSamplesTrained) == 0.) {
      Add("training", Grade::kWarn, "the last step trained no sample",
          "see the reason in the learner's log: \"step trained no sample\"");
    }
    if (const auto share = Metric(status, metric::kTrainRewardZeroStdRatio);
        share && *share > 0.8) {
      Add("signal", Grade::kWarn,
          absl::StrFormat("%.0f %% of groups have equal rewards and teach nothing", 100 * *share),
          "the reward says nothing (try it with oxbow score), or the task is too easy or too hard: "
          "other prompts, a larger batch.group_size, or batch.dynamic_sampling_max");
    }
  }

  void Staleness(const v1::StatusResponse& status) {
    const auto most = Metric(status, metric::kRolloutStalenessMax);
    if (!most.has_value()) return;
    const double mean = Metric(status, metric::kRolloutStalenessMean).value_or(*most);
    std::string found = absl::StrFormat("mean %.1f, largest %.0f steps", mean, *most);
    if (!facts_.staleness_max.has_value()) return Add("staleness", Grade::kOk, found);
    const auto budget = static_cast<double>(*facts_.staleness_max);
    absl::StrAppendFormat(&found, ", budget %.0f", budget);
    const Grade verdict = *most > budget                      ? Grade::kFail
                          : budget > 1 && mean > 0.9 * budget ? Grade::kWarn
                                                              : Grade::kOk;
    Add("staleness", verdict, found,
        "workers run ahead of the learner: fewer workers, or a lower off_policy.publish_every");
  }

  void Workers(const v1::StatusResponse& status) {
    if (status.workers().empty()) {
      return Add("workers", Grade::kFail, "none is connected",
                 "start one: rollout_worker --learner HOST:PORT");
    }
    // Updates per learner step, from both counters.
    const double updates = status.learner_step() > 0
                               ? static_cast<double>(status.policy_version()) /
                                     static_cast<double>(status.learner_step())
                               : 1;
    const double patience = std::max(5.0, status.lease_seconds());
    const double steps_behind =
        std::max(2.0, static_cast<double>(facts_.staleness_max.value_or(1)) + 1);
    int silent = 0;
    int behind = 0;
    double lag_most = 0;
    for (const v1::WorkerStatus& worker : status.workers()) {
      const uint64_t lag = status.published_version() -
                           std::min(status.published_version(), worker.policy_version());
      const double steps = static_cast<double>(lag) / std::max(1.0, updates);
      lag_most = std::max(lag_most, steps);
      silent += worker.seconds_since_seen() > patience ? 1 : 0;
      behind += steps > steps_behind ? 1 : 0;
    }
    Add("workers",
        silent == 0                       ? Grade::kOk
        : silent == status.workers_size() ? Grade::kFail
                                          : Grade::kWarn,
        absl::StrFormat("%d known, %d silent for more than %.0f s", status.workers_size(), silent,
                        patience),
        "they died or cannot reach the learner: see their logs; others do their work meanwhile");
    Add("worker ids", status.duplicate_worker_ids().empty() ? Grade::kOk : Grade::kWarn,
        status.duplicate_worker_ids().empty()
            ? "each process has its own"
            : absl::StrCat("several processes call themselves ",
                           absl::StrJoin(status.duplicate_worker_ids(), ", ")),
        "only one of them gets work: leave out rollout_worker --id, or give each its own");
    BadWorkers(status);
    Versions(status);
    Add("weights lag", behind == 0 ? Grade::kOk : Grade::kWarn,
        absl::StrFormat("slowest worker %.1f learner steps behind version %d", lag_most,
                        status.published_version()),
        "a slow network or refused weights: see `weights` in the worker's log, and "
        "services.weight_fanout");
  }

  void BadWorkers(const v1::StatusResponse& status) {
    int bad = 0;
    const v1::WorkerStatus* first = nullptr;
    for (const v1::WorkerStatus& worker : status.workers()) {
      if (worker.failures() < lease::WorkerBook::Rule().failures_max) continue;
      if (bad++ == 0) first = &worker;
    }
    if (first == nullptr) return Add("bad workers", Grade::kOk, "none fails all that it is given");
    Add("bad workers", bad == status.workers_size() ? Grade::kFail : Grade::kWarn,
        absl::StrCat(bad, " of ", status.workers_size(), " fail whatever they are given; ",
                     first->worker_id(), ", ", first->failures(), " times: ", first->failure()),
        "start that worker again, on another GPU if it stays so (dmesg: Xid); a run ends only "
        "where all are bad for services.patience_minutes");
  }

  void Versions(const v1::StatusResponse& status) {
    const std::vector<std::string> others = OtherVersions(status);
    Add("versions", others.empty() ? Grade::kOk : Grade::kWarn,
        others.empty() ? absl::StrCat("all are oxbow ", status.version())
                       : absl::StrCat(absl::StrJoin(others, ", "), "; the learner is oxbow ",
                                      status.version()),
        "start them from the learner's version: another one may compute otherwise");
  }

  void Leases(const v1::StatusResponse& status) {
    const double age = status.lease_age_max_seconds();
    const double limit = std::max(60.0, 3 * status.lease_seconds());
    Add("leases", age > limit ? Grade::kWarn : Grade::kOk,
        absl::StrFormat("%d groups under way, the oldest for %.1f s; %d leases expired, %d results "
                        "discarded",
                        status.groups_running(), age, status.leases_expired(),
                        status.groups_discarded()),
        "a worker renews but does not finish: see which one holds leases (oxbow status), restart "
        "it; services.speculation_factor gives its group to another");
  }

  void Failures(const v1::StatusResponse& status) {
    const std::string trouble = TroubleOf(status);
    if (trouble.empty()) return;
    const bool stands = status.last_failure().seconds_since_first() > kFailingLong ||
                        status.phase() == learner::kAwaitsRewards;
    Add("groups failing", stands ? Grade::kFail : Grade::kWarn, trouble,
        "the words after the last colon are the failing part's own: correct it there; a run that "
        "waits goes on by itself");
  }

  void Notices(const v1::StatusResponse& status) {
    if (!status.notices().empty()) {
      Add("notices", Grade::kWarn, absl::StrJoin(status.notices(), "; "),
          "docs/oncall.md says of each what it means; they stay until the learner starts again");
    }
    if (const double failed = Metric(status, metric::kCheckpointCopiesFailed).value_or(0);
        failed > 0) {
      Add("copies", Grade::kWarn,
          absl::StrFormat("%.0f copies of checkpoints failed since the learner's start", failed),
          "the learner's log says why of each; docs/runbooks/copies_failing.md");
    }
  }

  void Quarantined(const v1::StatusResponse& status) {
    if (status.prompts_quarantined() == 0) return;
    const v1::QuarantinedPrompt& first = status.quarantined(0);
    Add("quarantine", Grade::kWarn,
        absl::StrCat(status.prompts_quarantined(), " prompts have images without a score, ",
                     status.samples_unscored(), " samples dropped; \"", first.text(),
                     "\": ", first.reason()),
        "oxbow status lists them: correct the reward for them, or take them out of the prompts");
  }

  void Attached(const v1::StatusResponse& status) {
    const auto attached = Metric(status, metric::kBufferAttached);
    if (!attached.has_value()) return;
    Add("replay", *attached > 0 ? Grade::kOk : Grade::kWarn,
        *attached > 0 ? "the learner has its buffer" : "the learner goes on without its buffer",
        "start replay_buffer again on the same --data: it is taken up by itself; if it runs, its "
        "disk or network is slow (docs/runbooks/buffer_slow.md)");
  }

  void Rewards(const RewardCounts& counts) {
    const double all = counts.scored + counts.refused;
    const double share = all > 0 ? counts.refused / all : 0;
    Add(absl::StrCat("scores of ", counts.name), Above(share, kRefusedWarn, kRefusedFail),
        absl::StrFormat("%.0f given, %.0f refused (%.2f %%)", counts.scored, counts.refused,
                        100 * share),
        absl::StrCat("see ", exported::kRewardItemsTotal.name,
                     " by outcome and its log: invalid is an image or prompt that the reward "
                     "cannot read, failed is the reward itself"));
  }

  void Buffer(const v1::InfoResponse& buffer) {
    const uint64_t least = std::max(kDiskLeast, buffer.disk_bytes() / 4);
    const uint64_t ample = std::max(8 * kDiskLeast, buffer.disk_bytes());
    const uint64_t free = buffer.disk_free_bytes();
    Add("buffer disk",
        free < least   ? Grade::kFail
        : free < ample ? Grade::kWarn
                       : Grade::kOk,
        absl::StrCat(BytesText(buffer.disk_bytes()), " used, ", BytesText(free), " free; ",
                     buffer.entries(), " of ", buffer.capacity(), " entries"),
        "free some space or move --data: on a full disk offers are refused, training goes on");
  }

  const FleetFacts& facts_;
  Checks checks_;
};

}  // namespace

Checks JudgeFleet(const FleetFacts& facts) { return FleetJudge(facts).Run(); }

}  // namespace oxbow::cli
