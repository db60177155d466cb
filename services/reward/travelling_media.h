// SPDX-License-Identifier: Apache-2.0
// The pictures and videos of one call, as they travel to reward servers.
//
// Raw pixels change nothing. A PNG has the same pixels and takes fewer bytes and more time. A JPEG
// takes fewer still, and its pixels, and so the scores, are others: that is part of the reward's
// identity (run/rewards.h). Videos travel raw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/types/span.h"
#include "base/image8.h"
#include "oxbow/v1/config.pb.h"
#include "oxbow/v1/reward.pb.h"
#include "services/reward/score_plan.h"

namespace oxbow::reward {

// One picture, or the frames of one video, all of one size.
using Frames = absl::Span<const Image8>;

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

}  // namespace oxbow::reward
