// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/coordinator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"

namespace oxbow::learner {

Coordinator::Coordinator(Options options, const Clock& clock, GroupAssembler& assembler,
                         LearnerMetrics& metrics)
    : options_(std::move(options)),
      events_(options_.run_id, clock, metrics),
      published_(options_.leases.staleness_max),
      roster_(options_.workers, options_.leases.epoch, options_.credit_max, clock, published_,
              metrics),
      leasing_(options_, roster_, published_, assembler, events_, clock, metrics) {}

Coordinator::Turn::~Turn() {
  const std::vector<std::shared_ptr<Session>> woken = coordinator_.roster_.TakeWoken();
  coordinator_.mutex_.Unlock();
  for (const std::shared_ptr<Session>& session : woken) session->Wake();
}

void Coordinator::Plan(StepPlan plan) {
  const Turn turn(*this);
  leasing_.table().Plan(plan.step);
  leasing_.Add(std::move(plan.groups));
}

void Coordinator::Refill(std::vector<PlannedGroup> groups) {
  const Turn turn(*this);
  leasing_.table().Refill(groups.at(0).step, groups.size());
  leasing_.Add(std::move(groups));
}

std::vector<PlannedGroup> Coordinator::TakePlanned(LearnerStep step) {
  const Turn turn(*this);
  return leasing_.TakePlanned(step);
}

void Coordinator::Commit(LearnerStep step) {
  const Turn turn(*this);
  leasing_.Commit(step);
  leasing_.Report();
}

void Coordinator::OfferPictures(std::vector<v1::Lease::Pictures> units,
                                std::shared_ptr<DrawnPictures> results) {
  const Turn turn(*this);
  OXBOW_CHECK(!units.empty()) << "an evaluation without pictures";
  leasing_.OfferPictures(std::move(units), std::move(results));
  leasing_.HandOut();
}

void Coordinator::HurryPictures() {
  const Turn turn(*this);
  leasing_.pictures().Hurry(true);
  leasing_.HandOut();
}

void Coordinator::EndPictures() {
  const Turn turn(*this);
  leasing_.pictures().Hurry(false);
  leasing_.OfferPictures({}, nullptr);
}

void Coordinator::Drain(DrainReason reason) {
  const Turn turn(*this);
  roster_.Drain(reason);
}

bool Coordinator::awaits_rewards() const {
  absl::MutexLock lock(&mutex_);
  return roster_.awaits_rewards();
}

void Coordinator::Tick() {
  const Turn turn(*this);
  leasing_.Expire();
  leasing_.HandOut();
  leasing_.HelpStragglers(/*pictures=*/false);
  leasing_.HelpStragglers(/*pictures=*/true);
  leasing_.LookAtWorkers();
  roster_.Forget();
  leasing_.Report();
}

void Coordinator::Registered(const std::string& worker, const std::string& version) {
  const Turn turn(*this);
  roster_.Registered(worker, version);
}

absl::Status Coordinator::Open(Session& session, const std::string& worker, uint64_t process) {
  const Turn turn(*this);
  return roster_.Open(session, worker, process);
}

void Coordinator::Close(Session& session, bool goodbye) {
  const Turn turn(*this);
  if (!roster_.Close(session, goodbye)) return;
  const absl::Duration lease_time = options_.leases.lease_time;
  const absl::Duration grace = goodbye ? absl::ZeroDuration() : lease::DepartureGrace(lease_time);
  leasing_.table().Depart(session.worker(), grace);
  leasing_.pictures().table().Depart(session.worker(), grace);
  leasing_.Expire();
  leasing_.HandOut();
}

void Coordinator::SetCredit(Session& session, PolicyVersion version, uint32_t groups) {
  const Turn turn(*this);
  if (!session.open()) return;
  roster_.SetCredit(session, version, groups);
  leasing_.HandOut();
}

void Coordinator::Renew(Session& session, const std::vector<LeaseId>& leases,
                        const std::string& waiting_for) {
  const Turn turn(*this);
  if (!session.open()) return;
  leasing_.Expire();
  const bool waits = !waiting_for.empty();
  std::vector<LeaseId> renewed;
  for (const LeaseId lease : leases) {
    if (leasing_.TableOf(lease).Renew(session.worker(), lease, waits)) renewed.push_back(lease);
  }
  roster_.Renewed(session, renewed, waiting_for);
  leasing_.HandOut();
}

void Coordinator::Finish(Session& session, LeaseId lease, const std::string& failure,
                         lease::Blame blame) {
  const Turn turn(*this);
  roster_.Seen(session);
  // A lease that has ended is nobody's; those of others are theirs to end.
  if (failure.empty() || !leasing_.TableOf(lease).Holds(session.worker(), lease)) return;
  leasing_.Fail(lease, failure, blame);
  leasing_.HandOut();
}

void Coordinator::Unscored(Session& session, LeaseId lease, uint32_t samples,
                           const std::string& reason) {
  const Turn turn(*this);
  if (!leasing_.table().Holds(session.worker(), lease)) return;
  events_.NoteFailure("image", reason, /*no_score=*/true);
  OXBOW_LOG(Warning) << "samples without a score" << Field("lease", lease)
                     << Field("samples", samples) << Field("reason", reason);
}

std::optional<v1::WorkResponse> Coordinator::Take(Session& session) {
  absl::MutexLock lock(&mutex_);
  return roster_.Take(session);
}

std::optional<v1::Lease::Pictures> Coordinator::PicturesOf(const std::string& worker,
                                                           LeaseId lease) {
  absl::MutexLock lock(&mutex_);
  return leasing_.pictures().PicturesOf(worker, lease);
}

bool Coordinator::SubmitPictures(const std::string& worker, LeaseId lease,
                                 absl::StatusOr<std::vector<DrawnPictures::Frames>> pictures) {
  const Turn turn(*this);
  leasing_.Expire();
  PictureLeases& leases = leasing_.pictures();
  if (!leases.table().Holds(worker, lease)) return false;
  const absl::Status fits = pictures.ok() ? leases.Check(*pictures) : pictures.status();
  std::optional<lease::LeaseGrant> superseded;
  const bool taken = fits.ok() && leases.Accept(lease, *std::move(pictures), superseded);
  if (!fits.ok()) leasing_.Fail(lease, std::string(fits.message()));
  if (taken) roster_.book().Succeeded(worker);
  leasing_.Supersede(superseded);
  leasing_.HandOut();
  return taken;
}

v1::InsertOutcome Coordinator::Submit(ReceivedGroup received, std::string& error) {
  const absl::Status finite = CheckFinite(received.group, options_.rules);  // Megabytes: unlocked.
  const Turn turn(*this);
  leasing_.Expire();
  const v1::InsertOutcome outcome = leasing_.Accept(std::move(received), finite, error);
  if (outcome == v1::INSERT_OUTCOME_ACCEPTED) {
    leasing_.HandOut();
  } else if (outcome != v1::INSERT_OUTCOME_DUPLICATE) {
    events_.Discarded();
  }
  return outcome;
}

void Coordinator::Refuse(LeaseId lease, const std::string& worker, const std::string& reason) {
  const Turn turn(*this);
  events_.Discarded();
  if (!leasing_.table().Holds(worker, lease)) return;
  leasing_.Fail(lease, absl::StrCat("invalid result: ", reason));
}

void Coordinator::FillStatus(v1::StatusResponse& response) const {
  absl::MutexLock lock(&mutex_);
  leasing_.FillStatus(response);
}

}  // namespace oxbow::learner
