// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/lease_events.h"

#include "base/log.h"
#include "metrics/step_metrics.h"
#include "services/learner/coordinator/picture_leases.h"

namespace oxbow::learner {
namespace {

struct EventRow {
  void (LearnerMetrics::*count)();
  LogLevel level;
  const char* of_group;  // The line of the log; null: none.
  const char* of_pictures;
};

constexpr EventRow kEvents[] = {
    {&LearnerMetrics::LeaseGranted, LogLevel::kDebug, "lease granted", nullptr},
    {&LearnerMetrics::LeaseSpeculated, LogLevel::kInfo, "straggler leased a second time", nullptr},
    {&LearnerMetrics::LeaseExpired, LogLevel::kWarning, "lease expired",
     "lease of held-out pictures expired"},
    {&LearnerMetrics::LeaseFailed, LogLevel::kWarning, "group failed", "held-out pictures failed"},
    {&LearnerMetrics::LeaseSuperseded, LogLevel::kDebug, nullptr, nullptr},
};

}  // namespace

bool Quarantine::Failed(GroupId group, LearnerStep step, const v1::Prompt& prompt,
                        const std::string& reason) {
  if (++failures_[group.value] < kFailuresMax || Holds(PromptId(prompt.id()))) return false;
  v1::QuarantinedPrompt& held = prompts_[prompt.id()];
  held.set_prompt_id(prompt.id());
  held.set_text(prompt.text());
  held.set_reason(reason);
  held.set_learner_step(step.value);
  return true;
}

uint32_t Quarantine::failures(GroupId group) const {
  const auto found = failures_.find(group.value);
  return found == failures_.end() ? 0 : found->second;
}

void Quarantine::FillStatus(v1::StatusResponse& response) const {
  response.set_prompts_quarantined(prompts_.size());
  for (const auto& [id, held] : prompts_) {
    if (response.quarantined_size() >= static_cast<int>(kListed)) break;
    *response.add_quarantined() = held;
  }
}

void LeaseEvents::Note(LeaseEvent event, const lease::LeaseGrant& grant,
                       const std::string& reason) {
  const auto index = static_cast<size_t>(event);
  const EventRow& row = kEvents[index];
  ++counts_[index];
  (metrics_.*row.count)();
  const char* const text = PictureLeases::Names(grant.id) ? row.of_pictures : row.of_group;
  if (text == nullptr || !LogEnabled(row.level)) return;
  const TraceScope scope(TraceOf(grant));
  LogEvent line(row.level, __FILE__, __LINE__);
  line << text << Field("group", grant.group) << Field("lease", grant.id)
       << Field("worker", grant.worker) << Field("step", grant.step)
       << Field("attempt", grant.attempt);
  if (!reason.empty()) line << Field("reason", reason);
}

void LeaseEvents::NoteFailure(const std::string& what, const std::string& reason, bool no_score) {
  absl::MutexLock lock(&mutex_);
  if (no_score) unscored_reason_ = reason;
  const double now = absl::ToDoubleSeconds(clock_.Now());
  if (std::exchange(series_ended_, false)) {
    failures_.set_count(0);
    failures_.set_seconds_since_first(now);
  }
  failures_.set_what(what);
  failures_.set_reason(reason);
  failures_.set_count(failures_.count() + 1);
  failures_.set_seconds_since_last(now);
}

void LeaseEvents::FillStatus(v1::StatusResponse& response) const {
  response.set_leases_expired(CountOf(LeaseEvent::kExpired));
  response.set_leases_speculated(CountOf(LeaseEvent::kSpeculated));
  response.set_leases_superseded(CountOf(LeaseEvent::kSuperseded));
  response.set_groups_discarded(discarded_);
  response.set_samples_unscored(unscored_);
  absl::MutexLock lock(&mutex_);
  if (failures_.count() == 0) return;
  const double now = absl::ToDoubleSeconds(clock_.Now());
  v1::Failure& failure = *response.mutable_last_failure();
  failure = failures_;
  failure.set_seconds_since_first(now - failures_.seconds_since_first());
  failure.set_seconds_since_last(now - failures_.seconds_since_last());
}

void LeaseEvents::AddCounts(std::map<std::string, double>& numbers) const {
  const auto number = [](uint64_t count) { return static_cast<double>(count); };
  numbers[metric::kRolloutLeasesExpired] = number(CountOf(LeaseEvent::kExpired));
  numbers[metric::kRolloutLeasesSpeculated] = number(CountOf(LeaseEvent::kSpeculated));
  numbers[metric::kRolloutLeasesSuperseded] = number(CountOf(LeaseEvent::kSuperseded));
  numbers[metric::kRolloutGroupsDiscarded] = number(discarded_);
}

}  // namespace oxbow::learner
