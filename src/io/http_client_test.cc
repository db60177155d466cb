// SPDX-License-Identifier: Apache-2.0
// One exchange with servers that answer well, wrongly, slowly and not at all.
#include "io/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/testing/scripted_http_server.h"

namespace oxbow::io {
namespace {

using ::testing::HasSubstr;
using testing::HttpText;
using ::testing::Not;
using testing::ScriptedHttpServer;
using Request = ScriptedHttpServer::Request;

absl::StatusOr<HttpAnswer> AnswerOf(const std::string& bytes,
                                    const HttpClient::Options& options = {}) {
  ScriptedHttpServer server([&](const Request&) { return bytes; });
  HttpClient client(options);
  return client.Post({.url = server.url() + "/ask", .body = "{}"}, absl::Seconds(30));
}

TEST(HttpClientTest, SendsTheBodyAndTheKeyAndReturnsWhatTheServerSaid) {
  ScriptedHttpServer server([](const Request&) {
    return HttpText(429, "busy", "Content-Type: text/plain\r\nRetry-After: 7\r\n");
  });
  HttpClient client({});
  const std::string body(3 << 20, 'x');
  const auto answer = client.Post({.url = server.url() + "/ask", .body = body, .bearer = "sesame"},
                                  absl::Seconds(30));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, 429);
  EXPECT_EQ(answer->body, "busy");
  EXPECT_EQ(answer->retry_after, absl::Seconds(7));
  ASSERT_EQ(server.requests().size(), 1);
  const Request request = server.requests().front();
  EXPECT_EQ(request.body, body);
  EXPECT_THAT(request.head, HasSubstr("POST /ask HTTP/1.1"));
  EXPECT_THAT(request.head, HasSubstr("Authorization: Bearer sesame"));
  EXPECT_THAT(request.head, HasSubstr("Content-Type: application/json"));
  EXPECT_THAT(request.head, Not(HasSubstr("Expect")));
}

// Promise: A judge's key stays a secret.
TEST(HttpClientTest, FollowsNoRedirectAndUsesNoProxy) {
  ScriptedHttpServer target([](const Request&) { return HttpText(200, "{}"); });
  ScriptedHttpServer server([&](const Request&) {
    return HttpText(307, "", "Location: " + target.url() + "/there\r\n");
  });
  ::setenv("http_proxy", target.url().c_str(), 1);
  HttpClient client({});
  const auto answer = client.Post({.url = server.url(), .body = "{}"}, absl::Seconds(30));
  ::unsetenv("http_proxy");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, 307);
  EXPECT_EQ(answer->location, target.url() + "/there");
  EXPECT_TRUE(target.requests().empty());
}

TEST(HttpClientTest, AnAnswerHasALimitInItsBodyAndInItsHeaders) {
  const HttpClient::Options options{.answer_bytes_max = 1000};
  EXPECT_TRUE(AnswerOf(HttpText(200, std::string(1000, 'x')), options).ok());
  const auto longer = AnswerOf(HttpText(200, std::string(1001, 'x')), options);
  EXPECT_EQ(longer.status().code(), absl::StatusCode::kDataLoss) << longer.status();
  EXPECT_THAT(std::string(longer.status().message()), HasSubstr("longer than 1000 bytes"));
  // A length that is not announced is counted, too.
  const auto endless = AnswerOf("HTTP/1.1 200 OK\r\n\r\n" + std::string(5000, 'x'), options);
  EXPECT_EQ(endless.status().code(), absl::StatusCode::kDataLoss) << endless.status();
  std::string headers;
  for (int i = 0; i < 2000; ++i) headers += "X-Header: " + std::string(50, 'x') + "\r\n";
  const auto many = AnswerOf(HttpText(200, "{}", headers), options);
  EXPECT_EQ(many.status().code(), absl::StatusCode::kDataLoss) << many.status();
}

TEST(HttpClientTest, WhatIsCutOrNotHttpIsDataLoss) {
  const std::string cut = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"rewards\": [";
  for (const std::string& bytes : {cut, std::string("hello\r\n\r\n")}) {
    const auto answer = AnswerOf(bytes);
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kDataLoss) << answer.status();
  }
  EXPECT_EQ(AnswerOf("").status().code(), absl::StatusCode::kUnavailable) << "it hung up";
}

TEST(HttpClientTest, AServerThatSaysNothingCostsTheDeadline) {
  ScriptedHttpServer server([](const Request&) { return std::nullopt; });
  HttpClient client({});
  const auto silent = client.Post({.url = server.url(), .body = "{}"}, absl::Milliseconds(200));
  EXPECT_EQ(silent.status().code(), absl::StatusCode::kDeadlineExceeded) << silent.status();
  EXPECT_THAT(std::string(silent.status().message()), HasSubstr(server.url()));
  const auto late = client.Post({.url = server.url(), .body = "{}"}, absl::ZeroDuration());
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
}

// The deadline of the call is far beyond that of the test.
TEST(HttpClientTest, ACancelledCallEndsWithoutAnAnswer) {
  HttpClient client({});
  ScriptedHttpServer server([&](const Request&) {
    client.Cancel();
    return std::nullopt;
  });
  for (int i = 0; i < 2; ++i) {
    const auto answer = client.Post({.url = server.url(), .body = "{}"}, absl::Hours(1));
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kCancelled) << answer.status();
  }
}

TEST(HttpClientTest, NobodyThereIsUnavailable) {
  std::string url;
  {
    ScriptedHttpServer server([](const Request&) { return std::nullopt; });
    url = server.url();
  }
  HttpClient client({});
  const auto answer = client.Post({.url = url, .body = "{}"}, absl::Seconds(30));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
}

// Promise: A judge's key stays a secret.
TEST(HttpClientTest, AUrlHasNoSecretsAndNoOtherScheme) {
  for (const char* url : {"http://judge:8000/v1", "https://judge", "http://[::1]:8000/a/b"}) {
    EXPECT_TRUE(CheckHttpUrl(url).ok()) << url;
  }
  for (const char* url :
       {"", "judge:8000", "ftp://judge", "file:///etc/passwd", "http://", "http:///v1",
        "http://me:secret@judge", "http://judge/v1?key=secret", "http://judge/#secret",
        "http://judge/a secret", "http://judge/secret\n"}) {
    const absl::Status status = CheckHttpUrl(url);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace oxbow::io
