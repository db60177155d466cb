// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/leasing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "core/parallel/share.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kEvaluationWaits = absl::Minutes(1);  // For one worker that is not bad.
constexpr LearnerStep kAnyWeights(0);                          // Serve pictures.

}  // namespace

void ConditioningHolders::Given(const std::string& sha256, const std::string& worker) {
  const auto [found, is_new] = held_.try_emplace(sha256);
  Held& held = found->second;
  if (is_new) {
    held.turn = turns_.insert(turns_.end(), &found->first);
  } else {
    turns_.splice(turns_.end(), turns_, held.turn);
  }
  std::erase(held.workers, worker);
  held.workers.insert(held.workers.begin(), worker);
  held.workers.resize(std::min(held.workers.size(), options_.workers_max));
  if (held_.size() <= options_.conditionings_max) return;
  const auto oldest = held_.find(*turns_.front());
  turns_.pop_front();
  held_.erase(oldest);
}

std::vector<std::string> ConditioningHolders::Of(const std::string& sha256) const {
  const auto found = held_.find(sha256);
  return found == held_.end() ? std::vector<std::string>() : found->second.workers;
}

Leasing::Leasing(const Options& options, Roster& roster, const PublishedVersions& published,
                 GroupAssembler& assembler, LeaseEvents& events, const Clock& clock,
                 LearnerMetrics& metrics)
    : options_(options),
      roster_(roster),
      published_(published),
      assembler_(assembler),
      events_(events),
      clock_(clock),
      metrics_(metrics),
      table_(options.leases, clock, &roster.book()),
      pictures_(options.leases, clock, roster.book()) {}

// A step has room for its refills.
uint64_t Leasing::FirstOf(LearnerStep step) const {
  return step.value * (options_.leases.groups_per_step + options_.leases.dynamic_sampling_max);
}

void Leasing::Add(std::vector<PlannedGroup> groups) {
  for (PlannedGroup& group : groups) planned_.emplace(group.id.value, std::move(group));
  HandOut();
  Report();
}

std::vector<PlannedGroup> Leasing::TakePlanned(LearnerStep step) {
  const auto begin = planned_.lower_bound(FirstOf(step));
  const auto end = planned_.lower_bound(FirstOf(LearnerStep(step.value + 1)));
  std::vector<PlannedGroup> groups;
  for (auto it = begin; it != end; ++it) groups.push_back(std::move(it->second));
  planned_.erase(begin, end);
  return groups;
}

void Leasing::Commit(LearnerStep step) {
  table_.Commit(step);
  quarantine_.Forget(GroupId(FirstOf(LearnerStep(step.value + 1))));
  events_.StepCommitted();
}

lease::LeaseTable& Leasing::TableOf(LeaseId lease) {
  return PictureLeases::Names(lease) ? pictures_.table() : table_;
}

uint64_t Leasing::RunningOf(const std::string& worker) const {
  return table_.RunningOf(worker) + pictures_.table().RunningOf(worker);
}

// A session that is given nothing ends it, unless that is for its worker's sake: those behind it
// have the same weights or older ones, and pictures may be drawn with any.
void Leasing::HandOut() {
  const Roster::Row& waiting = roster_.waiting();
  const bool pictures = pictures_.first();
  for (auto next = waiting.begin(); next != waiting.end();) {
    Roster::Session& session = *next->second;
    const std::string& worker = session.worker();
    bool kept = !roster_.book().Admits(worker, RunningOf(worker));
    const bool given =
        !kept && (Acquire(session, pictures, kept) || Acquire(session, !pictures, kept));
    if (!given && !kept) return;
    next = given ? waiting.begin() : std::next(next);
  }
}

bool Leasing::Acquire(Roster::Session& session, bool pictures, bool& kept) {
  const std::string& worker = session.worker();
  const auto grant = pictures ? pictures_.table().Acquire(worker, kAnyWeights, &kept)
                              : table_.Acquire(worker, session.weights_step(), &kept);
  if (grant.has_value()) Give(session, *grant);
  return grant.has_value();
}

void Leasing::Give(Roster::Session& session, const lease::LeaseGrant& grant) {
  const bool pictures = PictureLeases::Names(grant.id);
  roster_.Give(session, pictures ? pictures_.Describe(grant) : Describe(grant));
  events_.Note(LeaseEvent::kGranted, grant);
}

v1::Lease Leasing::Describe(const lease::LeaseGrant& grant) {
  const PlannedGroup& planned = planned_.at(grant.group.value);
  v1::Lease lease;
  lease.set_lease_id(grant.id.value);
  lease.set_group_id(grant.group.value);
  lease.set_learner_step(grant.step.value);
  lease.set_attempt(grant.attempt);
  *lease.mutable_prompt() = planned.prompt;
  if (planned.conditioning.bytes != nullptr) {
    lease.set_conditioning_sha256(planned.conditioning.sha256);
    lease.set_conditioning_bytes(planned.conditioning.bytes->size());
    for (const std::string& worker : holders_.Of(planned.conditioning.sha256)) {
      lease.add_conditioning_peers()->set_worker_id(worker);
    }
    holders_.Given(planned.conditioning.sha256, grant.worker);
  }
  lease.set_group_size(options_.rules.group_size - (planned.whole() != nullptr ? 1 : 0));
  for (size_t i = 0; i < planned.sde.size(); ++i) {
    if (planned.sde[i]) lease.add_sde_steps(static_cast<uint32_t>(i));
  }
  if (const auto* mixed = planned.As<MixedGroup>()) {
    v1::Lease::Head& head = *lease.mutable_head();
    head.set_entry_id(mixed->head.entry.value);
    head.set_buffer_shard(mixed->head.shard);
    head.set_kept_steps(mixed->head.kept_steps);
    head.set_stored_reward(mixed->head.stored_reward);
  }
  lease.set_policy_version_min(published_.OldestFor(grant.step).value);
  lease.set_sink_rank(static_cast<uint32_t>(
      parallel::OwnerOf(planned.place, options_.leases.groups_per_step, options_.ranks)));
  lease.set_seconds(absl::ToDoubleSeconds(options_.leases.lease_time));
  lease.set_drops_unscored(quarantine_.Holds(PromptId(planned.prompt.id())));
  return lease;
}

void Leasing::HelpStragglers(bool pictures) {
  lease::LeaseTable& table = pictures ? pictures_.table() : table_;
  const std::optional<absl::Duration> next = table.NextStraggler();
  if (!next.has_value() || *next > clock_.Now()) return;
  const Roster::Row& waiting = roster_.waiting();
  for (auto place = waiting.begin(); place != waiting.end();) {
    Roster::Session& session = *(place++)->second;
    const std::string& worker = session.worker();
    if (pictures && table_.RunningOf(worker) > 0) continue;
    if (!roster_.book().Admits(worker, RunningOf(worker))) continue;
    const auto grant = table.Speculate(worker, pictures ? kAnyWeights : session.weights_step());
    if (!grant.has_value()) continue;
    events_.Note(LeaseEvent::kSpeculated, *grant);
    Give(session, *grant);
  }
}

void Leasing::Expire() {
  for (lease::LeaseTable* table : {&table_, &pictures_.table()}) {
    for (const lease::LeaseGrant& lost : table->Expire()) {
      events_.Note(LeaseEvent::kExpired, lost);
      roster_.Cancel(lost, "lease expired", /*silence=*/true);  // Or it would lose the next, too.
    }
  }
}

v1::InsertOutcome Leasing::Accept(ReceivedGroup&& received, const absl::Status& finite,
                                  std::string& error) {
  const v1::Group& group = received.group;
  if (group.epoch() != options_.leases.epoch.value) return v1::INSERT_OUTCOME_FENCED;
  const LeaseId id(group.lease_id());
  std::optional<lease::LeaseGrant> grant;  // If the lease lives and is of this group.
  if (const lease::LeaseGrant* live = table_.Find(id);
      live != nullptr && live->group.value == group.group_id()) {
    // Only its holder may end a lease, by a result or otherwise.
    if (live->worker != group.worker_id()) return v1::INSERT_OUTCOME_FENCED;
    grant = *live;
    absl::Status fits =
        CheckGroup(group, planned_.at(group.group_id()), published_, options_.rules);
    fits.Update(finite);
    if (!fits.ok()) {
      error = std::string(fits.message());
      Fail(id, absl::StrCat("invalid result: ", error));
      return v1::INSERT_OUTCOME_INVALID;
    }
  }
  std::optional<lease::LeaseGrant> superseded;
  using lease::AcceptOutcome;
  const AcceptOutcome outcome = table_.Accept(GroupId(group.group_id()), id, &superseded);
  if (outcome == AcceptOutcome::kDuplicate) return v1::INSERT_OUTCOME_DUPLICATE;
  if (outcome == AcceptOutcome::kSuperseded) return v1::INSERT_OUTCOME_SUPERSEDED;
  if (outcome == AcceptOutcome::kFenced) return v1::INSERT_OUTCOME_FENCED;
  if (const uint64_t unscored = UnscoredIn(group); unscored > 0) {
    events_.Dropped(unscored);
  } else {
    quarantine_.Scored(PromptId(group.prompt().id()));
  }
  roster_.Finished(grant->worker);
  received.attempt = grant->attempt;
  assembler_.Add(grant->step, std::move(received));
  Supersede(superseded);
  return v1::INSERT_OUTCOME_ACCEPTED;
}

void Leasing::Fail(LeaseId lease, const std::string& reason, lease::Blame blame) {
  const lease::LeaseGrant grant = *TableOf(lease).Find(lease);
  if (roster_.book().Failed(grant.worker, reason, blame)) {
    metrics_.WorkerRests();
    const lease::WorkerBook::Record& record = *roster_.book().Find(grant.worker);
    const absl::Duration rest = record.rests_until - record.failed;
    OXBOW_LOG(Warning) << "worker gets no lease for a while: its leases fail one after another"
                       << Field("worker", grant.worker) << Field("failures", record.failures)
                       << Field("seconds", absl::ToDoubleSeconds(rest)) << Field("reason", reason);
  }
  events_.Note(LeaseEvent::kFailed, grant, reason);
  const bool pictures = PictureLeases::Names(lease);
  events_.NoteFailure(pictures ? "evaluation" : "group", reason,
                      /*no_score=*/!pictures && blame == lease::Blame::kNobody);
  if (pictures) return pictures_.Fail(lease, reason, blame);
  const absl::Status status = table_.Fail(lease, reason, blame);
  const TraceScope scope(events_.TraceOf(grant));
  PlannedGroup& planned = planned_.at(grant.group.value);
  if (blame == lease::Blame::kNobody &&
      quarantine_.Failed(grant.group, grant.step, planned.prompt, reason)) {
    OXBOW_LOG(Warning) << "prompt quarantined: its samples without a score are dropped"
                       << Field("prompt", planned.prompt.text()) << Field("group", grant.group)
                       << Field("reason", reason);
  }
  // A second lease that still lives was given the head, and its result will have it.
  const bool under_way = table_.state().groups.at(grant.group.value).first.value != 0;
  if (planned.head() != nullptr && !under_way &&
      table_.failures(grant.group) - quarantine_.failures(grant.group) >=
          options_.head_failures_max) {
    OXBOW_LOG(Warning) << "group goes on without its replayed head" << Field("group", grant.group)
                       << Field("entry", planned.head()->entry);
    planned.kind = FreshGroup();
    metrics_.HeadMissing();
  }
  if (!status.ok()) assembler_.Stop(status);
}

void Leasing::Supersede(const std::optional<lease::LeaseGrant>& other) {
  if (!other.has_value()) return;
  events_.Note(LeaseEvent::kSuperseded, *other);
  roster_.Cancel(*other, "another attempt was first");
}

void Leasing::OfferPictures(std::vector<v1::Lease::Pictures> units,
                            std::shared_ptr<DrawnPictures> results) {
  for (const lease::LeaseGrant& grant : pictures_.Begin(std::move(units), std::move(results))) {
    roster_.Cancel(grant, "nobody waits for these pictures");
  }
}

void Leasing::LookAtWorkers() {
  lease::WorkerBook& book = roster_.book();
  book.Look();
  const std::optional<absl::Duration> since = book.all_bad_since();
  if (!since.has_value()) return;
  const absl::Duration waited = clock_.Now() - *since;
  const std::string worker = book.last_bad();
  const auto why = [&](absl::Duration wait, const char* key) {
    return absl::UnavailableError(absl::StrCat(
        "each of ", book.bad(), " workers fails whatever it is given, for ",
        absl::FormatDuration(wait), key, ", last ", worker, ": ", book.Find(worker)->reason));
  };
  if (waited >= kEvaluationWaits) pictures_.GiveUp(why(kEvaluationWaits, ""));
  if (waited < options_.patience) return;
  assembler_.Stop(why(options_.patience, " (services.patience_minutes)"));
}

void Leasing::FillStatus(v1::StatusResponse& response) const {
  roster_.FillStatus(response);
  for (v1::WorkerStatus& worker : *response.mutable_workers()) {
    worker.set_leases(static_cast<uint32_t>(RunningOf(worker.worker_id())));
  }
  response.set_published_version(published_.newest().value);
  response.set_groups_running(table_.running());
  response.set_groups_ready(assembler_.ready());
  if (const auto& running = table_.state().running; !running.empty()) {
    response.set_lease_age_max_seconds(
        absl::ToDoubleSeconds(clock_.Now() - running.begin()->first));
  }
  response.set_lease_seconds(absl::ToDoubleSeconds(options_.leases.lease_time));
  quarantine_.FillStatus(response);
  events_.FillStatus(response);
}

void Leasing::Report() const {
  metrics_.GroupsAre(table_.pending(), table_.running(), assembler_.ready());
  metrics_.PromptsQuarantined(quarantine_.size());
  roster_.Report();
}

}  // namespace oxbow::learner
