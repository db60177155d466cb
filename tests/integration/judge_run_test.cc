// SPDX-License-Identifier: Apache-2.0
// Runs with a judge that answers nonsense, an error, too late or not at all: an observed one
// touches nothing but its own numbers, and a trained one costs samples, not the run.
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "tests/integration/training_run.h"
#include "tests/testing/process.h"
#include "tests/testing/scoped_directory.h"
#include "tests/testing/scripted_http_server.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
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

// Promise: Servers and judges of others make no score up.
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

// Promise: An observed reward that fails touches nothing else.
TEST(JudgeRunTest, AnObservedJudgeThatAlwaysFailsChangesNothing) {
  const std::string terms = "reward.terms=[{name: digits_ocr, weight: 1}]";
  TrainingRun alone(Overrides({terms, "reward.observed=[]"}));
  ASSERT_EQ(alone.WaitExit().value(), 0) << alone.process().error_output();

  std::atomic<int> asked = 0;
  ScriptedHttpServer judge([&](const Request&) -> std::optional<std::string> {
    ++asked;
    return HttpText(500, R"({"detail": "CUDA out of memory"})");
  });
  TrainingRun run(Overrides({terms, "reward.observed=[judge]", Entry(judge)}));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> losses = alone.Series("train/loss");
  ASSERT_THAT(losses, SizeIs(3));
  EXPECT_THAT(run.Series("train/loss"), ElementsAreArray(losses));
  EXPECT_EQ(run.FinalWeights(), alone.FinalWeights());
  EXPECT_THAT(run.Series("train/samples_unscored"), Each(0));
  EXPECT_GE(asked, 3 * 16) << "each sample was shown to it";
  EXPECT_THAT(run.Series("train/reward_judge_failed"), ElementsAre(16, 16, 16));
  EXPECT_THAT(run.Series("train/reward_judge_mean"), SizeIs(0)) << "never a made-up score";
  EXPECT_THAT(run.process().error_output(), Not(HasSubstr("started again")));
}

// Promise: Servers and judges of others make no score up.
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

// The judge has an hour for its answer, and calls that run have ten seconds.
// Promise: Servers and judges of others make no score up.
TEST(JudgeRunTest, AJudgeThatHangsDoesNotDelayTheStopOfItsServer) {
  absl::Notification asked;
  ScriptedHttpServer judge([&](const Request&) -> std::optional<std::string> {
    asked.Notify();
    return std::nullopt;
  });
  const ScopedDirectory scratch;
  const std::string config = (scratch.path() / "run.yaml").string();
  std::ofstream(config) << absl::StrReplaceAll(
      R"(reward:
  timeout_seconds: 3700
  terms: [{name: judge, weight: 1}]
  scorers: [{name: judge, kind: vlm, variant: yes_no, llm: j, url: "URL/v1", timeout_seconds: 3600}]
)",
      {{"URL", judge.url()}});
  auto server = Process::Start(
      {.argv = {BinaryPath("reward_server"), "--config", config}, .environment = {}});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto ready = (*server)->WaitForLine("READY", absl::Seconds(60));
  ASSERT_TRUE(ready.ok()) << ready.status();

  const auto stub = v1::Reward::NewStub(
      grpc::CreateChannel(ValueOf(*ready, "grpc"), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto call = stub->Score(&context);
  v1::ScoreRequest request;
  request.mutable_prompt()->set_text("a cat");
  v1::Image& image = *request.add_items()->mutable_image();
  image.set_width(1);
  image.set_height(1);
  image.set_channels(1);
  image.set_pixels("x");
  ASSERT_TRUE(call->Write(request));
  ASSERT_TRUE(asked.WaitForNotificationWithTimeout(absl::Seconds(60)));
  (*server)->Kill(SIGTERM);
  EXPECT_EQ((*server)->WaitExit(absl::Seconds(60)).value(), 0);
  v1::ScoreResponse response;
  ASSERT_TRUE(call->Read(&response));
  ASSERT_THAT(response.outcomes(), SizeIs(1));
  EXPECT_EQ(response.outcomes(0).status_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace oxbow::testing
