// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/drawn_pictures.h"

#include <iterator>
#include <utility>

#include "base/check.h"

namespace oxbow::learner {

void DrawnPictures::Add(size_t lease, std::vector<Frames> pictures) {
  absl::MutexLock lock(&mutex_);
  OXBOW_CHECK(leases_.at(lease).empty() && !pictures.empty()) << "pictures of lease " << lease;
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

}  // namespace oxbow::learner
