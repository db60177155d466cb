// SPDX-License-Identifier: Apache-2.0
// The bookkeeping of segments against a plain list of what lies where.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/philox.h"
#include "services/buffer/segments.h"

namespace oxbow::buffer {
namespace {

constexpr uint64_t kSegment = 1000;

struct Lying {
  Location location;
  uint64_t bytes = 0;
};

class Reference {
 public:
  explicit Reference(uint64_t seed) : random_({.seed = seed}) {}

  void Step(uint64_t id) {
    const uint64_t kind = random_.NextBelow(10);
    if (kind < 5 || entries_.empty()) {
      Append(EntryId(id));
    } else if (kind < 9) {
      auto at = entries_.begin();
      std::advance(at, static_cast<ptrdiff_t>(random_.NextBelow(entries_.size())));
      use_.Release(at->first, at->second.location, at->second.bytes);
      entries_.erase(at);
    } else {
      use_.Seal();
    }
    for (const uint64_t segment : use_.TakeDead()) {
      ASSERT_TRUE(dead_.insert(segment).second) << "died twice: " << segment;
    }
    Check();
  }

 private:
  void Append(EntryId id) {
    const uint64_t bytes = 1 + random_.NextBelow(400);
    const Location location = use_.Append(id, bytes);
    uint64_t& end = ends_[location.segment];
    ASSERT_EQ(location.offset, end) << "behind what was put there before";
    ASSERT_LT(end, kSegment) << "into a segment that is full";
    ASSERT_EQ(location.segment, ends_.rbegin()->first) << "into an older segment";
    end += bytes;
    entries_[id] = {location, bytes};
  }

  void Check() {
    uint64_t live = 0;
    std::map<uint64_t, uint64_t> count;
    for (const auto& [_, lying] : entries_) {
      ASSERT_EQ(dead_.count(lying.location.segment), 0u) << "an entry lies in a dead segment";
      live += lying.bytes;
      ++count[lying.location.segment];
    }
    uint64_t written = 0;
    for (const auto& [segment, end] : ends_) {
      if (dead_.count(segment) > 0) continue;
      written += end;
      ASSERT_TRUE(use_.Holds(segment));
      ASSERT_EQ(use_.EntriesOf(segment).size(), count[segment]);
      // Only the one that is appended to may be there without an entry.
      ASSERT_TRUE(count[segment] > 0 || segment == ends_.rbegin()->first);
    }
    ASSERT_EQ(use_.bytes(), written);
    ASSERT_EQ(use_.dead_bytes(), written - live);
    const auto copied = use_.WorthCopying();
    if (written - live <= live + kSegment) {
      ASSERT_TRUE(copied.empty());
    } else if (written - live > live + 4 * kSegment) {
      ASSERT_FALSE(copied.empty());
    }
  }

  RandomStream random_;
  SegmentUse use_{1, kSegment};
  std::map<EntryId, Lying> entries_;
  std::map<uint64_t, uint64_t> ends_;
  std::set<uint64_t> dead_;
};

TEST(SegmentUseTest, EverySegmentIsKnownUntilItsLastEntryIsGone) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Reference reference(seed);
    for (uint64_t id = 1; id <= 500; ++id) ASSERT_NO_FATAL_FAILURE(reference.Step(id));
  }
}

}  // namespace
}  // namespace oxbow::buffer
