// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/trial.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/statistics.h"
#include "tests/chaos/offer_book.h"
#include "tests/chaos/run_checker.h"
#include "tests/chaos/trial_run.h"

namespace oxbow::chaos {
namespace {

namespace fs = std::filesystem;

void Add(int promise, const Violations& found, std::vector<std::string>& violations) {
  for (const std::string& what : found) {
    violations.push_back(absl::StrCat("promise ", promise, ": ", what));
  }
}

// If a fault kept the buffer from giving heads, those steps are on-policy: a valid run, but a
// different one.
bool MayDiffer(const TrialPlan& plan, const Evidence& evidence) {
  if (plan.Any(NeedsOwnScorer)) return true;  // Samples were dropped, as they should.
  const bool disturbed = plan.Any(KeepsFromBuffer);
  if (plan.replay_fraction == 0 || !disturbed) return false;
  const auto log = evidence.logs.find("learner");
  if (log == evidence.logs.end()) return false;
  return std::any_of(log->second.begin(), log->second.end(), [](const Event& event) {
    const std::string& name = NameOf(event);
    return name == "replay buffer is away, training goes on without it" ||
           name == "replay buffer goes on without a checkpoint, with what was born before" ||
           name == "replay buffer refuses a call" || name == "cannot read replay entries" ||
           name == "checkpoint without the replay buffer" ||
           name == "group goes on without its replayed head";
  });
}

std::vector<std::string> Judge(const Evidence& evidence) {
  std::vector<std::string> violations;
  Add(1, CheckOffersSurvive(evidence), violations);
  Add(2, CheckOneEntryPerPrompt(evidence), violations);
  Add(3, CheckTrainedOnce(evidence), violations);
  Add(5, CheckEndedWhole(evidence), violations);
  Add(6, CheckWeightsVerified(evidence), violations);
  Add(7, CheckMemory(evidence), violations);
  Add(8, CheckOrderAndCounters(evidence), violations);
  Add(9, CheckSecondStarts(evidence), violations);
  Add(10, CheckDamagedNotLoaded(evidence), violations);
  Add(11, CheckEarlyEnds(evidence), violations);
  return violations;
}

}  // namespace

const Evidence& Trials::Undisturbed(const TrialPlan& plan) {
  const TrialPlan twin = UndisturbedTwin(plan);
  const std::string key = Describe(twin);
  const auto known = undisturbed_.find(key);
  if (known != undisturbed_.end()) return known->second;
  const fs::path directory = options_.scratch / absl::StrCat("undisturbed_", undisturbed_.size());
  fs::create_directories(directory);
  Evidence evidence = TrialRun(options_, twin, directory).Finish();
  // An undisturbed run that is broken itself shows as violations of every run compared with it.
  for (std::string& what : Judge(evidence)) evidence.damage.push_back(std::move(what));
  if (evidence.damage.empty()) fs::remove_all(directory);
  return undisturbed_.emplace(key, std::move(evidence)).first->second;
}

TrialReport Trials::Run(const TrialPlan& plan) {
  const absl::Duration start = Clock::Steady().Now();
  TrialReport report{.plan = plan,
                     .directory = options_.scratch / absl::StrCat("seed_", plan.seed)};
  const auto kept = [&] { return options_.keep || !report.violations.empty(); };
  fs::remove_all(report.directory);
  fs::create_directories(report.directory);
  {
    TrialRun run(options_, plan, report.directory);
    for (size_t i = 0; i < plan.faults.size();) {
      size_t end = i + 1;
      while (end < plan.faults.size() && plan.faults[end].overlaps) ++end;
      const std::span<const Fault> together(&plan.faults[i], end - i);
      for (FaultReport& fault : run.Disturb(together)) report.faults.push_back(std::move(fault));
      i = end;
    }
    const Evidence evidence = run.Finish();
    report.took = Clock::Steady().Now() - start;
    report.violations = Judge(evidence);
    if (plan.deterministic && !MayDiffer(plan, evidence)) {
      const Evidence& undisturbed = Undisturbed(plan);
      Add(4, undisturbed.damage, report.violations);
      Add(4, CheckEqualsUndisturbed(evidence, undisturbed), report.violations);
    }
    // A mounted disk disappears with the run.
    std::error_code ignored;
    if (kept()) {
      fs::copy(run.run_directory(), report.directory / "left", fs::copy_options::recursive,
               ignored);
    }
  }
  if (!kept()) fs::remove_all(report.directory);
  return report;
}

bool TrialReport::OverlappingDone() const {
  for (size_t i = 1; i < faults.size(); ++i) {
    if (faults[i].fault.overlaps && faults[i].fate == FaultReport::Fate::kDone &&
        faults[i - 1].fate == FaultReport::Fate::kDone) {
      return true;
    }
  }
  return false;
}

std::string LineOf(const TrialReport& report) {
  std::string text = absl::StrFormat("%-4s %5.1f s  %s", report.violations.empty() ? "ok" : "FAIL",
                                     absl::ToDoubleSeconds(report.took), Describe(report.plan));
  for (const FaultReport& fault : report.faults) {
    if (fault.fate == FaultReport::Fate::kTooLate) absl::StrAppend(&text, " too late");
    if (fault.fate == FaultReport::Fate::kNotPossible) {
      absl::StrAppend(&text, " not possible: ", fault.why);
    }
    if (fault.to_next_step.has_value()) {
      absl::StrAppend(
          &text, " ",
          absl::FormatDuration(absl::Trunc(*fault.to_next_step, absl::Milliseconds(1))));
    }
  }
  for (const std::string& what : report.violations) absl::StrAppend(&text, "\n     ", what);
  if (!report.violations.empty()) {
    absl::StrAppend(&text, "\n     left in ", report.directory.string());
  }
  return text;
}

std::string TableOf(const std::vector<TrialReport>& reports) {
  std::string text =
      "| fault | times | in trials with violations | to the next step, median s | worst s |\n"
      "|---|---|---|---|---|\n";
  int overlapping = 0;
  for (const TrialReport& report : reports) {
    overlapping += report.OverlappingDone() ? 1 : 0;
  }
  for (int k = 0; k < kFaultKinds; ++k) {
    const auto kind = static_cast<FaultKind>(k);
    int times = 0;
    int broken = 0;
    std::string not_possible;
    std::vector<double> seconds;
    for (const TrialReport& report : reports) {
      for (const FaultReport& fault : report.faults) {
        if (fault.fault.kind != kind) continue;
        if (fault.fate == FaultReport::Fate::kNotPossible) not_possible = fault.why;
        if (fault.fate != FaultReport::Fate::kDone) continue;
        ++times;
        broken += report.violations.empty() ? 0 : 1;
        if (fault.to_next_step.has_value()) {
          seconds.push_back(absl::ToDoubleSeconds(*fault.to_next_step));
        }
      }
    }
    absl::StrAppend(&text, "| ", std::string(NameOf(kind)), " | ", times, " | ", broken, " | ");
    if (!not_possible.empty()) {
      absl::StrAppend(&text, "not possible here: ", not_possible, " | |\n");
    } else if (seconds.empty()) {
      absl::StrAppend(&text, "| |\n");
    } else {
      absl::StrAppend(
          &text, absl::StrFormat("%.2f | %.2f |\n", Quantile(seconds, 0.5), Quantile(seconds, 1)));
    }
  }
  absl::StrAppend(&text, "\ntwo faults at once: ", overlapping, " trials\n");
  return text;
}

}  // namespace oxbow::chaos
