// SPDX-License-Identifier: Apache-2.0
// The held-out pictures of an evaluation: offered, leased, taken. Their leases are those of groups
// in all that a worker sees, and count as no groups.
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "services/learner/coordinator/coordinator.h"

namespace oxbow::learner {

void Coordinator::OfferPictures(std::vector<v1::Lease::Pictures> units,
                                std::shared_ptr<DrawnPictures> results) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  DropPictures();
  OXBOW_CHECK(!units.empty()) << "an evaluation without pictures";
  ++evaluations_;
  for (v1::Lease::Pictures& unit : units) unit.set_evaluation(evaluations_);
  pictures_ = std::make_unique<PictureLeases>(options_.leases, picture_leases_, clock_, book_,
                                              std::move(units), std::move(results));
  HandOut();
}

void Coordinator::HurryPictures() {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  pictures_first_ = true;
  HandOut();
}

void Coordinator::EndPictures() {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  pictures_first_ = false;
  DropPictures();
}

void Coordinator::DropPictures() {
  if (pictures_ == nullptr) return;
  for (const auto& [id, live] : pictures_->table().state().live) {
    PushCancel(live.grant, "nobody waits for these pictures");
  }
  picture_leases_ = pictures_->granted();
  pictures_.reset();
}

bool Coordinator::GrantPictures(Session& session, bool& kept) {
  if (pictures_ == nullptr) return false;
  const auto grant = pictures_->table().Acquire(session.worker, LearnerStep(0), &kept);
  if (!grant.has_value()) return false;
  Give(session, pictures_->Describe(*grant));
  metrics_.LeaseGranted();
  return true;
}

void Coordinator::HelpSlowPictures() {
  if (pictures_ == nullptr) return;
  const std::optional<absl::Duration> next = pictures_->table().NextStraggler();
  if (!next.has_value() || *next > clock_.Now()) return;
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    Session& session = *(waiting++)->second;
    if (table_.RunningOf(session.worker) > 0 || !MayHave(session.worker)) continue;
    const auto grant = pictures_->table().Speculate(session.worker, LearnerStep(0));
    if (!grant.has_value()) continue;
    ++counts_.leases_speculated;
    metrics_.LeaseSpeculated();
    Give(session, pictures_->Describe(*grant));
    metrics_.LeaseGranted();
  }
}

std::optional<v1::Lease::Pictures> Coordinator::PicturesOf(const std::string& worker,
                                                           LeaseId lease) const {
  absl::MutexLock lock(&mutex_);
  if (pictures_ == nullptr || !pictures_->table().Holds(worker, lease)) return std::nullopt;
  return pictures_->PicturesOf(*pictures_->table().Find(lease));
}

bool Coordinator::SubmitPictures(const std::string& worker, LeaseId lease,
                                 std::vector<DrawnPictures::Frames> pictures) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  ExpireLeases();
  if (pictures_ == nullptr || !pictures_->table().Holds(worker, lease)) return false;
  if (const absl::Status fits = pictures_->results().Check(pictures); !fits.ok()) {
    FailPictures(lease, std::string(fits.message()));
    HandOut();
    return false;
  }
  const lease::LeaseGrant grant = *pictures_->table().Find(lease);
  std::optional<lease::LeaseGrant> superseded;
  const lease::AcceptOutcome outcome = pictures_->Accept(grant, std::move(pictures), &superseded);
  if (superseded.has_value()) Supersede(*superseded);
  if (outcome == lease::AcceptOutcome::kAccepted) book_.Succeeded(worker);
  HandOut();
  return outcome == lease::AcceptOutcome::kAccepted;
}

void Coordinator::RefusePictures(const std::string& worker, LeaseId lease,
                                 const std::string& reason) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  if (pictures_ == nullptr || !pictures_->table().Holds(worker, lease)) return;
  FailPictures(lease, reason);
  HandOut();
}

void Coordinator::FailPictures(LeaseId lease, const std::string& reason, lease::Blame blame) {
  const lease::LeaseGrant grant = *pictures_->table().Find(lease);
  metrics_.LeaseFailed();
  OXBOW_LOG(Warning) << "held-out pictures failed" << Field("lease", grant.id)
                     << Field("worker", grant.worker) << Field("attempt", grant.attempt)
                     << Field("reason", reason);
  failures_.Add(clock_.Now(), "evaluation", reason);
  NoteFailed(grant.worker, reason, blame);
  if (const absl::Status status = pictures_->table().Fail(lease, reason, blame); !status.ok()) {
    pictures_->results().End(status);
  }
}

}  // namespace oxbow::learner
