// SPDX-License-Identifier: Apache-2.0
// The entries that lie in each segment (segments.h), and where the next one goes. Pure bookkeeping:
// it follows from the records of the entries.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/ids.h"
#include "services/buffer/entry.h"

namespace oxbow::buffer {

class SegmentUse {
 public:
  // `next` is the number of the next segment; one is full at `segment_bytes`.
  SegmentUse(uint64_t next, uint64_t segment_bytes) : next_(next), segment_bytes_(segment_bytes) {}

  // The place of an entry of so many bytes: behind that of the one before.
  Location Append(EntryId entry, uint64_t bytes);

  // Notes an entry that lies there already.
  void Take(EntryId entry, Location location, uint64_t bytes);

  // Notes that an entry is gone. A segment without entries is dead once nothing is appended to it.
  void Release(EntryId entry, Location location, uint64_t bytes);

  // Appends no more to the present segment.
  void Seal();

  // Segments that died since the last call. Their files may go when the records that named them
  // are gone for good.
  std::vector<uint64_t> TakeDead();

  // Once more than half of all bytes are of entries that are gone: the segments with the largest
  // share of them, up to one segment's worth of entries that stay. Else none.
  std::vector<uint64_t> WorthCopying() const;

  // A number for a segment that a copy goes into.
  uint64_t NextNumber() { return next_++; }

  const absl::flat_hash_set<EntryId>& EntriesOf(uint64_t segment) const {
    return segments_.at(segment).entries;
  }
  bool Holds(uint64_t segment) const { return segments_.contains(segment); }
  uint64_t bytes() const { return written_; }  // Sum over segments that are not dead.
  uint64_t dead_bytes() const { return written_ - live_; }

 private:
  struct Segment {
    uint64_t written = 0;
    uint64_t live = 0;
    absl::flat_hash_set<EntryId> entries;
  };
  void Bury(uint64_t segment);

  uint64_t next_;
  const uint64_t segment_bytes_;
  uint64_t appended_ = 0;  // The segment that the next entry goes into; 0: a new one.
  std::map<uint64_t, Segment> segments_;
  std::vector<uint64_t> dead_;
  uint64_t written_ = 0;
  uint64_t live_ = 0;
};

}  // namespace oxbow::buffer
