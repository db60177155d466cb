// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/drawn_pictures.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::learner {

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

}  // namespace oxbow::learner
