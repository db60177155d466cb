// Runs with a judge that answers nonsense, an error, too late or not at all: an observed one
// touches nothing but its own numbers, and a trained one costs samples, not the run.
#include <atomic>
#include <cmath>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"
#include "tests/testing/scripted_http_server.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Request = ScriptedHttpServer::Request;

constexpr double kShare = .75;  // P(Yes) of a good answer.

std::string GoodAnswer() {
  return HttpText(
      200, absl::StrCat(R"({"choices": [{"message": {"content": "Yes"}, "logprobs": )"
                        R"({"content": [{"top_logprobs": [{"token": "Yes", "logprob": )",
                        std::log(kShare), R"(}, {"token": "No", "logprob": )", std::log(1 - kShare),
                        "}]}]}}]}"));
}

// The same answer to the same question, but for a judge that is busy when it is first asked.
std::optional<std::string> Misbehaving(const Request& request) {
  static absl::Mutex mutex;
  static std::set<std::string>& asked = *new std::set<std::string>;
  const std::string hash = Sha256(request.body);
  const auto kind = static_cast<uint8_t>(hash.front()) % 12;
  absl::MutexLock lock(&mutex);
  if (kind == 1 && !asked.insert(hash).second) return GoodAnswer();
  switch (kind) {
    case 0:
      return HttpText(200, "nonsense");
    case 1:
      return HttpText(429, R"({"detail": "too many"})");
    case 2:
      return HttpText(500, R"({"detail": "CUDA out of memory"})");
    case 3:
      return HttpText(302, "", "Location: http://127.0.0.1:1/\r\n");
    case 4:
      return HttpText(200, "<html>", "Content-Type: text/html\r\n");
    case 5:
      return "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"choices\": [";
    case 6:
      return HttpText(200, std::string(3 << 20, ' '));
    case 7:
      return std::nullopt;
    default:
      return GoodAnswer();
  }
}

std::vector<std::string> Overrides(const std::vector<std::string>& more) {
  std::vector<std::string> overrides = {"run.steps=3",    "run.deterministic=true",
                                        "batch.groups=4", "batch.group_size=4",
                                        "eval.every=0",   "reward.on_failure=drop_sample"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

std::string Entry(const ScriptedHttpServer& judge) {
  return absl::StrCat("reward.scorers=[{name: judge, kind: vlm, variant: yes_no, llm: j, url: \"",
                      judge.url(), "/v1\", timeout_seconds: 1}]");
}

TEST(JudgeRunTest, AnObservedJudgeThatMisbehavesChangesNothingButItsOwnNumbers) {
  const std::string terms = "reward.terms=[{name: digits_ocr, weight: 1}]";
  TrainingRun alone(Overrides({terms, "reward.observed=[]"}));
  ASSERT_EQ(alone.WaitExit().value(), 0) << alone.process().error_output();

  ScriptedHttpServer judge(Misbehaving);
  TrainingRun run(Overrides({terms, "reward.observed=[judge]", Entry(judge)}));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), ElementsAreArray(alone.Series("train/loss")));
  EXPECT_EQ(run.FinalWeights(), alone.FinalWeights());
  EXPECT_THAT(run.Series("train/samples_unscored"), Each(0));
  double failed = 0;
  for (const double count : run.Series("train/reward_judge_failed")) failed += count;
  EXPECT_GT(failed, 0);
  const std::vector<double> means = run.Series("train/reward_judge_mean");
  EXPECT_THAT(means, Not(SizeIs(0)));
  for (const double mean : means) EXPECT_NEAR(mean, kShare, 1e-6) << "over those that have a score";
}

TEST(JudgeRunTest, ATrainedJudgeThatHangsCostsSamplesAndNotTheRun) {
  std::atomic<bool> first = true;  // The grey image of the check before the first step.
  ScriptedHttpServer judge([&](const Request& request) -> std::optional<std::string> {
    if (first.exchange(false)) return GoodAnswer();
    if (static_cast<uint8_t>(Sha256(request.body).front()) % 5 == 0) return std::nullopt;
    return GoodAnswer();
  });
  TrainingRun run(
      Overrides({"reward.terms=[{name: digits_ocr, weight: 1}, {name: judge, weight: 1}]",
                 "reward.observed=[]", Entry(judge)}));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  double unscored = 0;
  for (const double count : run.Series("train/samples_unscored")) unscored += count;
  EXPECT_GT(unscored, 0);
  EXPECT_THAT(run.Series("train/reward_mean"), SizeIs(3));
  EXPECT_THAT(run.process().error_output(), Not(HasSubstr("started again")));
}

}  // namespace
}  // namespace oxbow::testing
