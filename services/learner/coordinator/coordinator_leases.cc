// SPDX-License-Identifier: Apache-2.0
// The life of a lease in the coordinator: granted, renewed, failed, expired.
#include <iterator>

#include "base/log.h"
#include "core/parallel/share.h"
#include "services/learner/coordinator/coordinator.h"

namespace oxbow::learner {

// A session that is given nothing ends it, unless that is for its worker's sake: those behind it
// have the same weights or older ones, and pictures may be drawn with any.
void Coordinator::HandOut() {
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    Session& session = *next->second;
    bool kept = !MayHave(session.worker);
    const bool given =
        !kept && (pictures_first_ ? GrantPictures(session, kept) || GrantGroup(session, kept)
                                  : GrantGroup(session, kept) || GrantPictures(session, kept));
    if (!given && !kept) return;
    next = given ? waiting_.begin() : std::next(next);
  }
}

bool Coordinator::MayHave(const std::string& worker) const {
  const uint64_t pictures = pictures_ == nullptr ? 0 : pictures_->table().RunningOf(worker);
  return book_.Admits(worker, table_.RunningOf(worker) + pictures);
}

bool Coordinator::GrantGroup(Session& session, bool& kept) {
  const auto grant = table_.Acquire(session.worker, *session.weights_step, &kept);
  if (grant.has_value()) Grant(session, *grant);
  return grant.has_value();
}

void Coordinator::HelpStragglers() {
  const std::optional<absl::Duration> next = table_.NextStraggler();
  if (!next.has_value() || *next > clock_.Now()) return;
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    Session& session = *(waiting++)->second;
    if (!MayHave(session.worker)) continue;
    const auto grant = table_.Speculate(session.worker, *session.weights_step);
    if (!grant.has_value()) continue;
    ++counts_.leases_speculated;
    metrics_.LeaseSpeculated();
    const TraceScope scope(TraceOf(*grant));
    OXBOW_LOG(Info) << "straggler leased a second time" << Field("group", grant->group)
                    << Field("lease", grant->id) << Field("worker", grant->worker)
                    << Field("step", grant->step) << Field("attempt", grant->attempt);
    Grant(session, *grant);
  }
}

void Coordinator::Give(Session& session, v1::Lease lease) {
  --session.credit;
  WaitNoMore(session);  // If it wants more, it goes to the end of the row.
  Wait(session);
  v1::WorkResponse response;
  *response.mutable_lease() = std::move(lease);
  Push(session, std::move(response));
}

void Coordinator::Grant(Session& session, const lease::LeaseGrant& grant) {
  Give(session, Describe(grant));
  metrics_.LeaseGranted();
  const TraceScope scope(TraceOf(grant));
  OXBOW_LOG(Debug) << "lease granted" << Field("group", grant.group) << Field("lease", grant.id)
                   << Field("worker", grant.worker) << Field("step", grant.step)
                   << Field("attempt", grant.attempt);
}

v1::Lease Coordinator::Describe(const lease::LeaseGrant& grant) {
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

void Coordinator::Renew(Session& session, const std::vector<LeaseId>& leases,
                        const std::string& waiting_for) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  if (!session.open) return;
  ExpireLeases();
  v1::WorkResponse response;
  response.mutable_renewed();
  for (const LeaseId lease : leases) {
    const bool of_pictures = PictureLeases::Names(lease);
    if (of_pictures && pictures_ == nullptr) continue;
    lease::LeaseTable& table = of_pictures ? pictures_->table() : table_;
    if (table.Renew(session.worker, lease, /*waits=*/!waiting_for.empty()))
      response.mutable_renewed()->add_lease_ids(lease.value);
  }
  workers_[session.worker].seen = clock_.Now();
  workers_[session.worker].waiting_for = waiting_for;
  Push(session, std::move(response));
  HandOut();
}

void Coordinator::Finish(Session& session, LeaseId lease, const std::string& failure,
                         lease::Blame blame) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  if (session.open) workers_[session.worker].seen = clock_.Now();
  if (PictureLeases::Names(lease)) {
    if (failure.empty() || pictures_ == nullptr ||
        !pictures_->table().Holds(session.worker, lease)) {
      return;
    }
    FailPictures(lease, failure, blame);
    return HandOut();
  }
  // A lease that has ended is nobody's; those of others are theirs to end.
  if (failure.empty() || !table_.Holds(session.worker, lease)) return;
  FailLease(lease, failure, blame);
  HandOut();
}

void Coordinator::NoteFailed(const std::string& worker, const std::string& reason,
                             lease::Blame blame) {
  if (!book_.Failed(worker, reason, blame)) return;
  metrics_.WorkerRests();
  const lease::WorkerBook::Record& record = *book_.Find(worker);
  OXBOW_LOG(Warning) << "worker gets no lease for a while: its leases fail one after another"
                     << Field("worker", worker) << Field("failures", record.failures)
                     << Field("seconds", absl::ToDoubleSeconds(record.rests_until - record.failed))
                     << Field("reason", reason);
}

void Coordinator::Unscored(Session& session, LeaseId lease, uint32_t samples,
                           const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  if (!table_.Holds(session.worker, lease)) return;
  unscored_reason_ = reason;
  failures_.Add(clock_.Now(), "image", reason);
  OXBOW_LOG(Warning) << "samples without a score" << Field("lease", lease)
                     << Field("samples", samples) << Field("reason", reason);
}

void Coordinator::FailLease(LeaseId lease, const std::string& reason, lease::Blame blame) {
  const lease::LeaseGrant* live = table_.Find(lease);
  if (live == nullptr) return;
  const lease::LeaseGrant grant = *live;
  metrics_.LeaseFailed();
  NoteFailed(grant.worker, reason, blame);
  const absl::Status status = table_.Fail(lease, reason, blame);
  const TraceScope scope(TraceOf(grant));
  OXBOW_LOG(Warning) << "group failed" << Field("group", grant.group) << Field("lease", grant.id)
                     << Field("worker", grant.worker) << Field("step", grant.step)
                     << Field("attempt", grant.attempt) << Field("reason", reason);
  failures_.Add(clock_.Now(), "group", reason);
  PlannedGroup& planned = planned_.at(grant.group.value);
  if (blame == lease::Blame::kNobody) {
    unscored_reason_ = reason;
    if (quarantine_.Failed(grant.group, grant.step, planned.prompt, reason)) {
      OXBOW_LOG(Warning) << "prompt quarantined: its samples without a score are dropped"
                         << Field("prompt", planned.prompt.text()) << Field("group", grant.group)
                         << Field("reason", reason);
    }
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

void Coordinator::ExpireLeases() {
  DropLost(table_.Expire());
  if (pictures_ != nullptr) DropLost(pictures_->table().Expire());
}

void Coordinator::DropLost(const std::vector<lease::LeaseGrant>& all) {
  for (const lease::LeaseGrant& lost : all) {
    ++counts_.leases_expired;
    metrics_.LeaseExpired();
    const TraceScope scope(TraceOf(lost));
    const bool of_pictures = PictureLeases::Names(lost.id);
    OXBOW_LOG(Warning) << (of_pictures ? "lease of held-out pictures expired" : "lease expired")
                       << Field("group", lost.group) << Field("lease", lost.id)
                       << Field("worker", lost.worker) << Field("step", lost.step)
                       << Field("attempt", lost.attempt);
    PushCancel(lost, "lease expired");
    const auto worker = workers_.find(lost.worker);
    if (worker == workers_.end() || worker->second.session == nullptr) continue;
    // A silent worker would lose the next leases as well.
    worker->second.session->credit = 0;
    WaitNoMore(*worker->second.session);
  }
}

Trace Coordinator::TraceOf(const lease::LeaseGrant& grant) const {
  return TraceOfGroup(options_.run_id, grant.group, grant.id);
}

}  // namespace oxbow::learner
