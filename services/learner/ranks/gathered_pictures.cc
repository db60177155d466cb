// SPDX-License-Identifier: Apache-2.0
#include "services/learner/ranks/gathered_pictures.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace oxbow::learner {

uint64_t GatheredPictures::Begin(const std::vector<parallel::Share>& shares) {
  absl::MutexLock lock(&mutex_);
  running_ = true;
  ended_ = absl::OkStatus();
  ranks_.clear();
  for (const parallel::Share& share : shares) {
    ranks_.emplace_back(share.begin, share.end - share.begin);
  }
  if (!ranks_.empty()) ranks_.front() = {};  // Rank 0 draws its own.
  return ++evaluation_;
}

void GatheredPictures::Add(uint32_t rank, const v1::PicturePiece& piece) {
  absl::MutexLock lock(&mutex_);
  if (!running_ || !ended_.ok() || piece.evaluation() != evaluation_) return;
  if (!piece.error().empty()) {
    ended_ = absl::UnavailableError(absl::StrCat("learner rank ", rank, ": ", piece.error()));
    return;
  }
  const absl::Status added =
      rank < ranks_.size() ? ranks_[rank].Add(piece) : absl::InvalidArgumentError("no share");
  if (added.ok()) return;
  ended_ = absl::InternalError(absl::StrCat("learner rank ", rank, " sent a picture that was not ",
                                            "asked for: ", std::string(added.message())));
}

absl::StatusOr<std::vector<GatheredPictures::Frames>> GatheredPictures::Await(
    absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !ended_.ok() ||
           std::all_of(ranks_.begin(), ranks_.end(),
                       [](const rpc::ComingPictures& rank) { return rank.complete(); });
  };
  const bool in_time = mutex_.AwaitWithTimeout(absl::Condition(&over), limit);
  if (!ended_.ok()) return ended_;
  if (!in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat("pictures of learner ranks did not come: ", Missing()));
  }
  running_ = false;
  std::vector<Frames> pictures;
  for (rpc::ComingPictures& rank : ranks_) {
    std::vector<Frames> own = std::move(rank).Take();
    std::move(own.begin(), own.end(), std::back_inserter(pictures));
  }
  ranks_.clear();
  return pictures;
}

std::string GatheredPictures::Missing() const {
  std::vector<std::string> missing;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].complete()) missing.push_back(absl::StrCat(rank));
  }
  return absl::StrJoin(missing, ", ");
}

std::optional<uint64_t> GatheredPictures::End(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (!running_) return std::nullopt;
  if (ended_.ok()) ended_ = why;
  return evaluation_;
}

bool GatheredPictures::running() const {
  absl::MutexLock lock(&mutex_);
  return running_ && ended_.ok();
}

}  // namespace oxbow::learner
