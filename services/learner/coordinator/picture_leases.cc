// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/picture_leases.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::learner {
namespace {

constexpr size_t kPeers = 2;  // Workers that a lease names as sources of the weights.

}  // namespace

absl::Status DrawnPictures::Check(const std::vector<Frames>& pictures) {
  absl::MutexLock lock(&mutex_);
  for (const Frames& frames : pictures) {
    const Image8& first = frames.front();
    const bool sized = size_.height > 0;
    if (sized && (frames.size() != size_.frames || first.height != size_.height ||
                  first.width != size_.width)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a picture of ", frames.size(), " frames of ", first.height, " x ", first.width,
          " pixels, not ", size_.frames, " of ", size_.height, " x ", size_.width));
    }
    const int channels = channels_ > 0 ? channels_ : pictures.front().front().channels;
    if (first.channels != channels) {
      return absl::InvalidArgumentError(
          absl::StrCat("a picture of ", first.channels, " channels, not ", channels));
    }
  }
  return absl::OkStatus();
}

void DrawnPictures::Add(size_t lease, std::vector<Frames> pictures) {
  absl::MutexLock lock(&mutex_);
  OXBOW_CHECK(leases_.at(lease).empty() && !pictures.empty()) << "pictures of lease " << lease;
  channels_ = pictures.front().front().channels;
  leases_[lease] = std::move(pictures);
  ++here_;
}

void DrawnPictures::End(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  ended_.Update(why);
}

absl::StatusOr<std::vector<DrawnPictures::Frames>> DrawnPictures::Await() {
  absl::MutexLock lock(&mutex_);
  const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return here_ == leases_.size() || !ended_.ok();
  };
  mutex_.Await(absl::Condition(&over));
  if (!ended_.ok()) return ended_;
  std::vector<Frames> all;
  for (std::vector<Frames>& pictures : leases_) {
    std::move(pictures.begin(), pictures.end(), std::back_inserter(all));
  }
  return all;
}

PictureLeases::PictureLeases(const lease::LeaseTable::Options& rules, const Clock& clock,
                             const lease::WorkerBook& workers)
    : rules_(rules), clock_(clock), workers_(workers) {
  rules_.first_lease = kFirst;
  rules_.first_step = LearnerStep(0);
  rules_.groups_per_step = 1;
  rules_.dynamic_sampling_max = 0;
  rules_.staleness_max = 0;
  table_.emplace(rules_, clock_, &workers_);
}

std::vector<lease::LeaseGrant> PictureLeases::Begin(std::vector<v1::Lease::Pictures> units,
                                                    std::shared_ptr<DrawnPictures> results) {
  std::vector<lease::LeaseGrant> ended;
  for (const auto& [id, live] : table_->state().live) ended.push_back(live.grant);
  rules_.first_lease = table_->state().leases_granted;
  rules_.groups_per_step = std::max(units.size(), size_t{1});
  table_.emplace(rules_, clock_, &workers_);
  if (!units.empty()) {
    ++evaluations_;
    table_->Plan(LearnerStep(0));  // They are all of one step, which any weights serve.
  }
  for (v1::Lease::Pictures& unit : units) unit.set_evaluation(evaluations_);
  units_ = std::move(units);
  results_ = std::move(results);
  holders_.clear();
  return ended;
}

std::optional<v1::Lease::Pictures> PictureLeases::PicturesOf(const std::string& worker,
                                                             LeaseId lease) const {
  if (!table_->Holds(worker, lease)) return std::nullopt;
  return units_.at(table_->Find(lease)->group.value);
}

v1::Lease PictureLeases::Describe(const lease::LeaseGrant& grant) {
  v1::Lease lease;
  lease.set_lease_id(grant.id.value);
  lease.set_attempt(grant.attempt);
  lease.set_seconds(absl::ToDoubleSeconds(rules_.lease_time));
  v1::Lease::Pictures& pictures = *lease.mutable_pictures();
  pictures = units_.at(grant.group.value);
  for (const std::string& holder : holders_) {
    if (holder != grant.worker) pictures.add_peers()->set_worker_id(holder);
  }
  std::erase(holders_, grant.worker);
  holders_.insert(holders_.begin(), grant.worker);
  if (holders_.size() > kPeers) holders_.pop_back();
  return lease;
}

bool PictureLeases::Accept(LeaseId lease, std::vector<DrawnPictures::Frames> pictures,
                           std::optional<lease::LeaseGrant>& superseded) {
  const GroupId unit = table_->Find(lease)->group;
  if (table_->Accept(unit, lease, &superseded) != lease::AcceptOutcome::kAccepted) return false;
  results_->Add(unit.value, std::move(pictures));
  return true;
}

}  // namespace oxbow::learner
