// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "simulate/run_in_motion.h"

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

double MeanWait(double load, uint64_t seed) {
  constexpr int kJobs = 400'000;
  constexpr double kService = 0.25;
  RandomStream random({.seed = seed});
  SerialServer server(1);
  double now = 0;
  double waited = 0;
  for (int i = 0; i < kJobs; ++i) {
    now += -std::log1p(-random.NextUniform()) * kService / load;
    waited += server.Serve(now, kService) - now - kService;
  }
  return waited / kJobs;
}

TEST(SerialServerTest, MeanWaitIsThatOfTheTheory) {
  for (const double load : {0.3, 0.6, 0.8}) {
    const double theory = load * 0.25 / (2 * (1 - load));
    EXPECT_NEAR(MeanWait(load, 7) / theory, 1, 0.03) << "load " << load << ", seed 7";
  }
}

TEST(SerialServerTest, EqualServersShareTheJobs) {
  SerialServer server(3);
  for (int i = 0; i < 7; ++i) {
    EXPECT_DOUBLE_EQ(server.Serve(10, 2), 10 + 2 * (i / 3 + 1)) << "job " << i;
  }
  EXPECT_DOUBLE_EQ(server.busy_s(), 14);
  EXPECT_DOUBLE_EQ(server.FreeAt(10), 14);
}

TEST(SerialServerTest, WithoutLimitNobodyWaits) {
  SerialServer server(0);
  for (int i = 0; i < 100; ++i) EXPECT_DOUBLE_EQ(server.Serve(1, 2), 3);
}

}  // namespace

}  // namespace oxbow::simulate
