// SPDX-License-Identifier: Apache-2.0
#include "services/learner/record/live_report.h"

#include <gtest/gtest.h>

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
      [&] {
        if (++writes == 1) written.Notify();
        return absl::InternalError("disk");
      },
      absl::Hours(1));
  report.Ask();
  ASSERT_TRUE(written.WaitForNotificationWithTimeout(kDeadline));
  report.Stop();
  report.Ask();
  EXPECT_EQ(writes, 1);
  LiveReport unused([] { return absl::InternalError("nobody asked"); }, absl::ZeroDuration());
}

// Promise: A run's page is as new as the run.
TEST(LiveReportTest, StaysNewWhileNobodyAsks) {
  absl::Notification third;
  int writes = 0;
  LiveReport report(
      [&] {
        if (++writes == 3) third.Notify();
        return absl::OkStatus();
      },
      absl::Milliseconds(1));
  report.Ask();
  EXPECT_TRUE(third.WaitForNotificationWithTimeout(kDeadline));
}

}  // namespace
}  // namespace oxbow::learner
