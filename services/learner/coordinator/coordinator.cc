// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "metrics/step_metrics.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kForgotten = absl::Minutes(10);  // A worker that left without a word.
constexpr size_t kNotices = 5;
constexpr absl::Duration kEvaluationWaits = absl::Minutes(1);  // For one worker that is not bad.
constexpr absl::Duration kDuplicateShown = absl::Minutes(1);

}  // namespace

Coordinator::Coordinator(Options options, const Clock& clock, GroupAssembler& assembler,
                         LearnerMetrics& metrics)
    : options_(std::move(options)),
      clock_(clock),
      assembler_(assembler),
      metrics_(metrics),
      book_(options_.workers, clock),
      table_(options_.leases, clock, &book_),
      published_(options_.leases.staleness_max) {}

void Coordinator::Plan(StepPlan plan) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  table_.Plan(plan.step);
  for (PlannedGroup& group : plan.groups) planned_.emplace(group.id.value, std::move(group));
  HandOut();
  Report();
}

void Coordinator::Refill(std::vector<PlannedGroup> groups) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  table_.Refill(groups.at(0).step, groups.size());
  for (PlannedGroup& group : groups) planned_.emplace(group.id.value, std::move(group));
  HandOut();
  Report();
}

void Coordinator::Published(PolicyVersion version, LearnerStep committed) {
  absl::MutexLock lock(&mutex_);
  published_.Add(version, committed);
}

std::optional<LearnerStep> Coordinator::StepOfVersion(PolicyVersion version) const {
  absl::MutexLock lock(&mutex_);
  return published_.StepOf(version);
}

std::vector<PlannedGroup> Coordinator::TakePlanned(LearnerStep step) {
  absl::MutexLock lock(&mutex_);
  const uint64_t stride = options_.leases.groups_per_step + options_.leases.dynamic_sampling_max;
  const auto begin = planned_.lower_bound(step.value * stride);
  const auto end = planned_.lower_bound((step.value + 1) * stride);
  std::vector<PlannedGroup> groups;
  for (auto it = begin; it != end; ++it) groups.push_back(std::move(it->second));
  planned_.erase(begin, end);
  return groups;
}

void Coordinator::Commit(LearnerStep step) {
  absl::MutexLock lock(&mutex_);
  table_.Commit(step);
  const uint64_t stride = options_.leases.groups_per_step + options_.leases.dynamic_sampling_max;
  quarantine_.Forget(GroupId((step.value + 1) * stride));
  failures_.StepCommitted();
  Report();
}

void Coordinator::NoteFailure(const std::string& what, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  failures_.Add(clock_.Now(), what, reason);
}

void Coordinator::Notice(const std::string& key, const std::string& text) {
  absl::MutexLock lock(&mutex_);
  if (notices_.size() >= kNotices || !notices_.emplace(key, text).second) return;
  OXBOW_LOG(Warning) << "notice" << Field("text", text);
}

std::string Coordinator::unscored_reason() const {
  absl::MutexLock lock(&mutex_);
  return unscored_reason_;
}

void Coordinator::Drain(DrainReason reason) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  if (draining_.has_value() && reason == DrainReason::kLearnerEnds) return;
  draining_ = reason;
  for (auto& [id, worker] : workers_) {
    if (worker.session == nullptr) continue;
    WaitNoMore(*worker.session);
    PushDrain(*worker.session);
  }
}

bool Coordinator::awaits_rewards() const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& item) {
    return item.second.session != nullptr && !item.second.waiting_for.empty();
  });
}

bool Coordinator::draining() const {
  absl::MutexLock lock(&mutex_);
  return draining_.has_value();
}

void Coordinator::Tick() {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  ExpireLeases();
  HandOut();
  HelpStragglers();
  HelpSlowPictures();
  LookAtWorkers();
  std::erase_if(workers_, [&](const auto& item) {
    return item.second.session == nullptr && clock_.Now() - item.second.seen > kForgotten;
  });
  std::erase_if(duplicates_,
                [&](const auto& item) { return clock_.Now() - item.second > kDuplicateShown; });
  Report();
}

void Coordinator::LookAtWorkers() {
  book_.Look();
  const std::optional<absl::Duration> since = book_.all_bad_since();
  if (!since.has_value()) return;
  const absl::Duration waited = clock_.Now() - *since;
  const std::string worker = book_.last_bad();
  const auto why = [&](const std::string& wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return absl::UnavailableError(
        absl::StrCat("each of ", book_.bad(), " workers fails whatever it is given, for ", wait,
                     ", last ", worker, ": ", book_.Find(worker)->reason));
  };
  if (pictures_ != nullptr && waited >= kEvaluationWaits) {
    pictures_->results().End(why(absl::FormatDuration(kEvaluationWaits)));
  }
  if (waited < options_.patience) return;
  assembler_.Stop(
      why(absl::StrCat(absl::FormatDuration(options_.patience), " (services.patience_minutes)")));
}

void Coordinator::Report() const {
  metrics_.GroupsAre(table_.pending(), table_.running(), assembler_.ready());
  uint64_t connected = 0;
  uint64_t lag = 0;
  uint64_t waiting = 0;
  const uint64_t newest = published_.newest().value;
  for (const auto& [id, worker] : workers_) {
    if (worker.session == nullptr) continue;
    ++connected;
    waiting += worker.waiting_for.empty() ? 0 : 1;
    if (worker.has_version && worker.version < newest) lag = std::max(lag, newest - worker.version);
  }
  metrics_.WorkersAre(connected, lag, waiting, book_.bad());
  metrics_.PromptsQuarantined(quarantine_.size());
}

void Coordinator::FillStatus(v1::StatusResponse& response) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, worker] : workers_) {
    v1::WorkerStatus& status = *response.add_workers();
    status.set_worker_id(id);
    status.set_policy_version(worker.version);
    const uint64_t pictures = pictures_ == nullptr ? 0 : pictures_->table().RunningOf(id);
    status.set_leases(static_cast<uint32_t>(table_.RunningOf(id) + pictures));
    status.set_groups_done(worker.groups_done);
    status.set_seconds_since_seen(absl::ToDoubleSeconds(clock_.Now() - worker.seen));
    if (worker.session != nullptr) status.set_waiting_for(worker.waiting_for);
    status.set_version(worker.build);
    const lease::WorkerBook::Record* const record = book_.Find(id);
    if (record == nullptr) continue;
    status.set_failures(record->failures);
    status.set_failure(record->reason);
    status.set_rests_seconds(
        std::max(0.0, absl::ToDoubleSeconds(record->rests_until - clock_.Now())));
  }
  response.set_published_version(published_.newest().value);
  response.set_groups_running(table_.running());
  response.set_groups_ready(assembler_.ready());
  response.set_leases_expired(counts_.leases_expired);
  response.set_leases_speculated(counts_.leases_speculated);
  response.set_leases_superseded(counts_.leases_superseded);
  response.set_groups_discarded(counts_.groups_discarded);
  response.set_samples_unscored(counts_.samples_unscored);
  quarantine_.FillStatus(response);
  failures_.FillStatus(clock_.Now(), response);
  if (const auto& running = table_.state().running; !running.empty()) {
    response.set_lease_age_max_seconds(
        absl::ToDoubleSeconds(clock_.Now() - running.begin()->first));
  }
  for (const auto& [key, text] : notices_) response.add_notices(text);
  for (const auto& [id, when] : duplicates_) response.add_duplicate_worker_ids(id);
  response.set_lease_seconds(absl::ToDoubleSeconds(options_.leases.lease_time));
}

void Coordinator::AddCounts(std::map<std::string, double>& numbers) const {
  absl::MutexLock lock(&mutex_);
  numbers[metric::kRolloutLeasesExpired] = static_cast<double>(counts_.leases_expired);
  numbers[metric::kRolloutLeasesSpeculated] = static_cast<double>(counts_.leases_speculated);
  numbers[metric::kRolloutLeasesSuperseded] = static_cast<double>(counts_.leases_superseded);
  numbers[metric::kRolloutGroupsDiscarded] = static_cast<double>(counts_.groups_discarded);
}

}  // namespace oxbow::learner
