#include "simulate/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/philox.h"

namespace oxbow::simulate {
namespace {

TEST(EventQueueTest, EventsComeByTimeAndThoseOfOneInstantAsTheyWereAdded) {
  RandomStream random({.seed = 11});
  EventQueue queue;
  std::vector<std::pair<double, uint32_t>> added;
  for (uint32_t i = 0; i < 2000; ++i) {
    const double at = static_cast<double>(random.NextBelow(50));
    queue.Add(EventKind::kGrant, at, i);
    added.emplace_back(at, i);
    if (i % 3 != 0) continue;
    const double recurs = i / 100;
    queue.AddInOrder(EventKind::kRenew, recurs, 10'000 + i, 0);
    added.emplace_back(recurs, 10'000 + i);
  }
  std::stable_sort(added.begin(), added.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [at, subject] : added) {
    const Event event = queue.Next();
    ASSERT_EQ(event.at, at) << "seed 11";
    ASSERT_EQ(event.subject, subject) << "seed 11";
    ASSERT_EQ(queue.Now(), absl::Seconds(at));
  }
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueueDeathTest, ThePastDoesNotChange) {
  EventQueue queue;
  queue.Add(EventKind::kGrant, 2);
  queue.Next();
  EXPECT_DEATH(queue.Add(EventKind::kGrant, 1), "in the past");
  EXPECT_DEATH(queue.AddInOrder(EventKind::kRenew, 1, 0, 0), "out of order");
}

}  // namespace
}  // namespace oxbow::simulate
