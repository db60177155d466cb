// SPDX-License-Identifier: Apache-2.0
// One call of RewardClient::ScoreMedia: what is asked, how it travels, and what is answered so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/image8.h"
#include "oxbow/v1/config.pb.h"
#include "oxbow/v1/reward.pb.h"
#include "services/reward/reward_directory.h"

namespace oxbow::reward {

// One picture, or the frames of one video, all of one size.
using Frames = absl::Span<const Image8>;

// The pictures and videos of one call, as they travel to reward servers.
//
// Raw pixels change nothing. A PNG has the same pixels and takes fewer bytes and more time. A JPEG
// takes fewer still, and its pixels, and so the scores, are others: that is part of the reward's
// identity (run/rewards.h). Videos travel raw.
class TravellingMedia {
 public:
  // The frames outlive this.
  TravellingMedia(std::vector<Frames> media, v1::PictureTransport transport);

  size_t size() const { return media_.size(); }

  // By medium.
  std::vector<MediumSize> sizes() const;

  // Bytes that travel if of a video the frames 0, `every`, 2 `every`, ... do. Encodes the picture
  // when it is first asked for, here and below. Thread-safe.
  uint64_t bytes(size_t medium, uint32_t every) const;
  // The message without pixels.
  v1::Image Head(size_t medium, uint32_t every) const;
  // `count` of the bytes that travel, from `offset` on. Requires that there are so many.
  std::string Bytes(size_t medium, uint32_t every, uint64_t offset, uint64_t count) const;

 private:
  struct File {
    absl::once_flag once;
    std::string bytes;
  };
  bool IsEncoded(size_t medium) const;
  const std::string& FileOf(size_t medium) const;
  MediumSize SizeOf(size_t medium) const;

  const std::vector<Frames> media_;
  const v1::PictureTransport transport_;
  const std::unique_ptr<File[]> files_;  // By medium. An array: a flag cannot be moved.
};

// True if the image has no score because a server answered without one.
bool IsUnscorable(const absl::Status& status);

// True if the server said that this very image cannot be scored, INVALID_ARGUMENT as the status of
// the item: no further try can bring a score.
bool IsFinal(const absl::Status& status);

using Outcomes = std::map<std::string, absl::StatusOr<double>>;  // By reward.

struct ScoreCall {
  v1::Prompt prompt;
  TravellingMedia media;
  bool waits = false;
  std::function<void(const std::string&)> says = nullptr;
  absl::Duration end;
  uint64_t group = 0;
  absl::Mutex mutex = {};
  std::vector<Outcomes> outcomes ABSL_GUARDED_BY(mutex) = {};  // By image.
  absl::Status absence ABSL_GUARDED_BY(mutex) = {};  // A reward that must not be missing is.
};

// The images and rewards of the batch that have no answer; nothing if all have one.
std::optional<ScoreBatch> Unanswered(ScoreCall& call, const ScoreBatch& batch);

// The part without a score that is to be asked for again: its answers are forgotten.
// Final ones stay.
std::optional<ScoreBatch> Reopen(ScoreCall& call, const ScoreBatch& batch);

// The answer to all that is still unanswered.
void Settle(ScoreCall& call, const ScoreBatch& batch, const absl::Status& status);

// Pixels of one message. The prompt and its metadata have the rest.
inline constexpr uint64_t kMessagePixelsMax = uint64_t{7} << 19;

// Writes a batch to a reward server, in messages of which none is larger than a gRPC server takes
// that was told nothing (4 MiB): those of others often are not. A medium that does not fit comes in
// pieces (ScoreItem in proto/oxbow/v1/reward.proto). Calls `write` with each message, and whether
// it is the last one, until it returns false. Requests have at most `batch_max` items; a whole
// group stays one.
void WriteBatch(const ScoreCall& call, const ScoreBatch& batch, size_t batch_max,
                const std::function<bool(const v1::ScoreRequest& message, bool last)>& write);

}  // namespace oxbow::reward
