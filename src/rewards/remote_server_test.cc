// SPDX-License-Identifier: Apache-2.0
// Answers of a server after which it is asked again, how long, and what its errors say.
#include "rewards/remote_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "tests/testing/scripted_http_server.h"

namespace oxbow::rewards {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using testing::HttpText;
using ::testing::Not;
using testing::ScriptedHttpServer;
using ::testing::SizeIs;
using Request = ScriptedHttpServer::Request;

// A server that is asked in a time that only pauses move.
class RemoteServerTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Ask(const ScriptedHttpServer::Script& script,
                                  const std::string& key = "",
                                  absl::Duration time_max = absl::Seconds(20)) {
    server_.emplace(script);
    pauses_.clear();
    RemoteServer remote(
        {.url = server_->url() + "/", .key = key, .clock = &clock_, .pause = [&](absl::Duration d) {
           pauses_.push_back(d);
           clock_.Advance(d);
         }});
    return remote.Ask("/compute", "{}", clock_.Now() + time_max);
  }

  FakeClock clock_;
  std::optional<ScriptedHttpServer> server_;
  std::vector<absl::Duration> pauses_;
};

TEST_F(RemoteServerTest, ABusyOrAbsentServerIsAskedAgainUntilItAnswers) {
  for (const int code : {429, 502, 503, 504}) {
    std::atomic<int> calls = 0;
    const auto answer = Ask([&](const Request&) {
      return ++calls < 4 ? HttpText(code, "later") : HttpText(200, "{\"a\": 1}");
    });
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(*answer, "{\"a\": 1}");
    EXPECT_THAT(server_->requests(), SizeIs(4));
    EXPECT_THAT(server_->requests().front().head, HasSubstr("POST /compute HTTP"));
    ASSERT_THAT(pauses_, SizeIs(3));
    for (int i = 0; i < 3; ++i) {
      const absl::Duration full = absl::Milliseconds(250) * (1 << i);
      EXPECT_GE(pauses_[i], full / 2);
      EXPECT_LE(pauses_[i], full);
    }
  }
}

// Promise: Servers and judges of others make no score up.
TEST_F(RemoteServerTest, AllTriesEndWithinOneDeadline) {
  const absl::Duration start = clock_.Now();
  const absl::Status busy = Ask([](const Request&) { return HttpText(429, "later"); }).status();
  EXPECT_EQ(busy.code(), absl::StatusCode::kResourceExhausted) << busy;
  EXPECT_LE(clock_.Now() - start, absl::Seconds(20));
  EXPECT_THAT(pauses_, SizeIs(Gt(3)));
  const absl::Status away = Ask([](const Request&) { return HttpText(503, ""); }).status();
  EXPECT_EQ(away.code(), absl::StatusCode::kUnavailable) << away;
}

TEST_F(RemoteServerTest, TheServersRetryAfterIsKeptOrNotBegun) {
  std::atomic<int> calls = 0;
  const auto answer = Ask([&](const Request&) {
    return ++calls < 2 ? HttpText(503, "", "Retry-After: 5\r\n") : HttpText(200, "{}");
  });
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(pauses_, Each(absl::Seconds(5)));
  const auto never = Ask([](const Request&) { return HttpText(429, "", "Retry-After: 60\r\n"); });
  EXPECT_EQ(never.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(pauses_, SizeIs(0));
}

// Deadlines and pauses are far beyond that of the test.
TEST(RemoteServerStopTest, QuestionsAndPausesEnd) {
  for (const auto& answer :
       {std::optional<std::string>(), std::optional(HttpText(503, "", "Retry-After: 3000\r\n"))}) {
    std::optional<RemoteServer> remote;
    std::thread stopper;
    ScriptedHttpServer server([&](const Request&) {
      stopper = std::thread([&] { remote->Stop(); });
      return answer;
    });
    remote.emplace(RemoteServer::Options{.url = server.url()});
    for (int i = 0; i < 2; ++i) {
      const auto said = remote->Ask("/compute", "{}", remote->Now() + absl::Hours(1));
      EXPECT_EQ(said.status().code(), absl::StatusCode::kUnavailable) << said.status();
    }
    stopper.join();
    EXPECT_THAT(server.requests(), SizeIs(1));
  }
}

TEST_F(RemoteServerTest, OtherRefusalsAreFinal) {
  const std::pair<int, absl::StatusCode> refusals[] = {
      {400, absl::StatusCode::kInvalidArgument},  {422, absl::StatusCode::kInvalidArgument},
      {401, absl::StatusCode::kPermissionDenied}, {404, absl::StatusCode::kNotFound},
      {500, absl::StatusCode::kInternal},         {304, absl::StatusCode::kNotFound}};
  for (const auto& [code, expected] : refusals) {
    const absl::Status status = Ask([code = code](const Request&) {
                                  return HttpText(code, R"({"detail": "because"})");
                                }).status();
    EXPECT_EQ(status.code(), expected) << status;
    if (code != 304) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("because"));
    }
    EXPECT_THAT(server_->requests(), SizeIs(1)) << code;
  }
  const absl::Status moved =
      Ask([](const Request&) { return HttpText(301, "", "Location: http://other/\r\n"); }).status();
  EXPECT_EQ(moved.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(moved.message()), HasSubstr("redirects to http://other/"));
}

TEST_F(RemoteServerTest, AHungServerCostsItsDeadlineOnce) {
  const absl::Status hung =
      Ask([](const Request&) { return std::nullopt; }, "", absl::Milliseconds(200)).status();
  EXPECT_EQ(hung.code(), absl::StatusCode::kDeadlineExceeded) << hung;
  EXPECT_THAT(server_->requests(), SizeIs(1));
}

// Promise: A judge's key stays a secret. It is sent to its server and stands in no log, error, note
// or identity, even where the server repeats it; an imported config never repeats one. No redirect
// takes it elsewhere.
TEST_F(RemoteServerTest, TheKeyIsSentAndNeverRepeated) {
  const std::string key = "sk-" + std::string(40, 'k') + "\"q";
  const std::string filler(290, 'x');  // The key lies across the end of what an error repeats.
  for (const int code : {401, 400, 500, 301, 429}) {
    const absl::Status status =
        Ask(
            [&](const Request& request) {
              EXPECT_THAT(request.head, HasSubstr("Authorization: Bearer " + key));
              return HttpText(code, "bad key " + key + filler.substr(0, 200) + key,
                              "Location: http://other/" + key + "\r\n");
            },
            key)
            .status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("kkkk")));
    EXPECT_LT(status.message().size(), 400);
  }
}

// Promise: A judge's key stays a secret.
TEST(RemoteKeyTest, AKeyIsOneLineOfAFile) {
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / "remote_key";
  const auto key_of = [&](const std::string& text) {
    std::ofstream(file) << text;
    return ReadKey(file.string());
  };
  EXPECT_EQ(key_of("  sesame\n").value(), "sesame");
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("open sesame"),
        std::string("a\r\nX-Header: sesame"), std::string(5000, 's'), std::string(100000, 's')}) {
    const absl::Status status = key_of(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("sesame")));
  }
  EXPECT_EQ(ReadKey("/nowhere/key").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace oxbow::rewards
