// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/segment_use.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace oxbow::buffer {

Location SegmentUse::Append(EntryId entry, uint64_t bytes) {
  if (appended_ != 0 && segments_[appended_].written >= segment_bytes_) Seal();
  if (appended_ == 0) appended_ = next_++;
  const Location location{appended_, segments_[appended_].written};
  Take(entry, location, bytes);
  return location;
}

void SegmentUse::Take(EntryId entry, Location location, uint64_t bytes) {
  Segment& segment = segments_[location.segment];
  OXBOW_CHECK(segment.entries.insert(entry).second) << "twice in a segment: " << entry;
  segment.live += bytes;
  live_ += bytes;
  // Bytes in front of it that are of no entry are of one that is gone.
  const uint64_t end = std::max(segment.written, location.offset + bytes);
  written_ += end - std::exchange(segment.written, end);
}

void SegmentUse::Release(EntryId entry, Location location, uint64_t bytes) {
  Segment& segment = segments_.at(location.segment);
  OXBOW_CHECK(segment.entries.erase(entry) == 1) << "not in its segment: " << entry;
  segment.live -= bytes;
  live_ -= bytes;
  if (segment.entries.empty() && location.segment != appended_) Bury(location.segment);
}

void SegmentUse::Seal() {
  const uint64_t sealed = std::exchange(appended_, 0);
  if (sealed != 0 && segments_.at(sealed).entries.empty()) Bury(sealed);
}

void SegmentUse::Bury(uint64_t segment) {
  written_ -= segments_.at(segment).written;
  segments_.erase(segment);
  dead_.push_back(segment);
}

std::vector<uint64_t> SegmentUse::TakeDead() { return std::exchange(dead_, {}); }

std::vector<uint64_t> SegmentUse::WorthCopying() const {
  if (dead_bytes() <= live_ + segment_bytes_) return {};
  std::vector<std::pair<double, uint64_t>> by_share;
  for (const auto& [number, segment] : segments_) {
    if (number == appended_) continue;
    const double share = static_cast<double>(segment.live) / static_cast<double>(segment.written);
    by_share.emplace_back(share, number);
  }
  std::sort(by_share.begin(), by_share.end());
  std::vector<uint64_t> chosen;
  uint64_t stays = 0;
  for (const auto& [share, number] : by_share) {
    stays += segments_.at(number).live;
    if (share > .5 || (stays > segment_bytes_ && !chosen.empty())) break;
    chosen.push_back(number);
  }
  return chosen;
}

}  // namespace oxbow::buffer
