// SPDX-License-Identifier: Apache-2.0
#include "rpc/retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace oxbow::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;

// Answers these in turn, then OK.
struct Script {
  std::vector<absl::Status> answers;
  size_t calls = 0;
  std::function<absl::Status()> Call() {
    return [this] { return calls++ < answers.size() ? answers[calls - 1] : absl::OkStatus(); };
  }
};

TEST(RetryTest, AbsentAndBusyServersAreAskedAgainAndAnswersStand) {
  const auto no_sleep = [](absl::Duration) {};
  Script script{{absl::UnavailableError(""), absl::ResourceExhaustedError("")}};
  EXPECT_TRUE(Retry({}, script.Call(), no_sleep).ok());
  EXPECT_EQ(script.calls, 3u);
  for (const absl::Status& answer : {absl::NotFoundError(""), absl::AbortedError(""),
                                     absl::DeadlineExceededError("may have been carried out")}) {
    Script once{{answer}};
    EXPECT_EQ(Retry({}, once.Call(), no_sleep), answer);
    EXPECT_EQ(once.calls, 1u);
  }
}

// Promise: A busy server costs no group.
TEST(RetryTest, ACallWhoseAnswerIsWantedIsMadeUntilItIsAnswered) {
  Script script{{absl::ResourceExhaustedError(""), absl::DeadlineExceededError(""),
                 absl::UnavailableError(""), absl::ResourceExhaustedError(""),
                 absl::UnavailableError("")}};
  const auto pause = [](absl::Duration) { return true; };
  EXPECT_TRUE(RetryUntilAnswered({.tries = 2}, script.Call(), pause).ok());
  EXPECT_EQ(script.calls, 6u);

  Script refused{{absl::UnavailableError(""), absl::NotFoundError("no")}};
  EXPECT_EQ(RetryUntilAnswered({}, refused.Call(), pause), absl::NotFoundError("no"));

  Script unwanted{{absl::UnavailableError("away"), absl::OkStatus()}};
  EXPECT_EQ(RetryUntilAnswered({}, unwanted.Call(), [](absl::Duration) { return false; }),
            absl::UnavailableError("away"));
  EXPECT_EQ(unwanted.calls, 1u);
}

TEST(BackoffTest, WaitsDoubleUpToTheLimitAndNoTwoCallersWaitEquallyLong) {
  std::vector<double> firsts;
  for (int caller = 0; caller < 8; ++caller) {
    Backoff backoff(absl::Seconds(1), absl::Seconds(4));
    double limit = 1;
    for (int i = 0; i < 5; ++i, limit = std::min(2 * limit, 4.0)) {
      const double wait = absl::ToDoubleSeconds(backoff.Next());
      EXPECT_THAT(wait, ::testing::AllOf(Ge(limit / 2), Le(limit)));
      if (i == 0) firsts.push_back(wait);
    }
  }
  std::sort(firsts.begin(), firsts.end());
  EXPECT_EQ(std::adjacent_find(firsts.begin(), firsts.end()), firsts.end());
}

}  // namespace
}  // namespace oxbow::rpc
