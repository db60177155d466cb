// SPDX-License-Identifier: Apache-2.0
#include "services/learner/record/live_report.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/synchronization/notification.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(30);

// Promise: A run's page is as new as the run. The learner writes the report after its first step,
// after each evaluation and every five minutes, no matter what started the learner. A page that
// nobody has written for ten minutes stops to load itself and says so. A page that is served shows
// a new step by itself.
TEST(LiveReportTest, IsWrittenWhenAskedAndNotBefore) {
  absl::Notification written;
  int writes = 0;
  LiveReport report(
      [&](bool live) {
        EXPECT_TRUE(live);
        if (++writes == 1) written.Notify();
        return absl::InternalError("disk");
      },
      absl::Hours(1));
  report.Ask();
  ASSERT_TRUE(written.WaitForNotificationWithTimeout(kDeadline));
  report.Stop();
  report.Ask();
  EXPECT_EQ(writes, 1);
  LiveReport unused([](bool) { return absl::InternalError("nobody asked"); }, absl::ZeroDuration());
}

// Promise: A run's page is as new as the run.
TEST(LiveReportTest, StaysNewWhileNobodyAsks) {
  absl::Notification third;
  int writes = 0;
  LiveReport report(
      [&](bool live) {
        EXPECT_TRUE(live);
        if (++writes == 3) third.Notify();
        return absl::OkStatus();
      },
      absl::Milliseconds(1));
  report.Ask();
  EXPECT_TRUE(third.WaitForNotificationWithTimeout(kDeadline));
}

TEST(LiveReportTest, TheLastReportIsThatOfARunThatHasEnded) {
  std::vector<bool> live;
  LiveReport report(
      [&](bool is_live) {
        live.push_back(is_live);
        return absl::OkStatus();
      },
      absl::Hours(1));
  report.WriteLast();
  EXPECT_EQ(live, std::vector<bool>{false});
}

}  // namespace
}  // namespace oxbow::learner
