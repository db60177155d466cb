// SPDX-License-Identifier: Apache-2.0
// The rewards over HTTP: our own client of Flow-Factory's protocol on the one side, raw bytes on
// the other.
#include "services/reward/http_front.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/descriptor.h"
#include "io/image.h"
#include "rewards/json_scorer.h"

namespace oxbow::reward {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const Image8 kPicture{.width = 2, .height = 2, .channels = 1, .pixels = {10, 20, 30, 40}};

// The first pixel; a scorer that can be made to wait, and that reads no black pictures.
class FirstPixel final : public Scorer {
 public:
  FirstPixel() : facts_{.name = "first.pixel", .identity = "1", .batch_max = 4} {}
  const RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 1; }
  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override {
    if (hold != nullptr) {
      entered.Notify();
      hold->WaitForNotification();
    }
    std::vector<absl::StatusOr<Score>> scores;
    for (const Item& item : items) {
      const double value = item.picture().pixels[0];
      scores.push_back(value > 0 ? absl::StatusOr<Score>(Score{.value = value})
                                 : absl::InvalidArgumentError("black"));
    }
    return scores;
  }
  absl::Notification* hold = nullptr;
  absl::Notification entered;

 private:
  const RewardFacts facts_;
};

class HttpFrontTest : public ::testing::Test {
 protected:
  HttpFrontTest()
      : panel_([&] {
          std::vector<std::unique_ptr<Scorer>> scorers;
          scorers.push_back(std::make_unique<FirstPixel>());
          scorer_ = static_cast<FirstPixel*>(scorers.back().get());
          return scorers;
        }()) {}

  void Start(const HttpFront::Options& options = {}) {
    front_ = HttpFront::Start(options, panel_, service_, metrics_).value();
  }

  // Everything that the server says to these bytes.
  std::string Say(const std::string& bytes) const {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int port = 0;
    EXPECT_TRUE(
        absl::SimpleAtoi(front_->endpoint().substr(front_->endpoint().rfind(':') + 1), &port));
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(::connect(socket.value, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::send(socket.value, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    std::string answer;
    char piece[4096];
    for (ssize_t count; (count = ::recv(socket.value, piece, sizeof piece, 0)) > 0;) {
      answer.append(piece, static_cast<size_t>(count));
    }
    return answer;
  }

  std::string Post(const std::string& path, const std::string& body,
                   const std::string& type = "application/json") const {
    return Say(absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: h\r\nContent-Type: ", type,
                            "\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  }

  static std::string Request(const std::vector<Image8>& pictures) {
    nlohmann::json request = {{"prompt", std::vector<std::string>(pictures.size(), "a")}};
    for (const Image8& picture : pictures)
      request["image"].push_back(absl::Base64Escape(io::EncodePng(picture)));
    return request.dump();
  }

  FirstPixel* scorer_ = nullptr;
  ScorerPanel panel_;
  prometheus::Registry registry_;
  RewardMetrics metrics_{registry_, panel_};
  RewardService service_{
      {.batch_max = 64, .queue = {.items_max = 4}}, panel_, metrics_, Clock::Steady()};
  std::unique_ptr<HttpFront> front_;
};

TEST_F(HttpFrontTest, OurOwnClientOfTheProtocolGetsTheScores) {
  Start();
  const auto client =
      rewards::MakeJsonScorer(
          {.name = "remote", .server = {.url = "http://" + front_->endpoint() + "/first.pixel"}})
          .value();
  std::vector<Image8> pictures(3, kPicture);
  for (size_t i = 0; i < pictures.size(); ++i)
    pictures[i].pixels[0] = static_cast<uint8_t>(7 * i + 1);
  std::vector<Item> items;
  for (const Image8& picture : pictures) items.push_back({.prompt = "a", .frames = {&picture, 1}});
  const auto scores = client->ScoreBatch(items);
  for (size_t i = 0; i < items.size(); ++i)
    EXPECT_EQ(scores[i].value().value, 7. * static_cast<double>(i) + 1);
  pictures[1].pixels[0] = 0;
  const auto failed = client->ScoreBatch(items);
  for (const auto& score : failed) {
    EXPECT_EQ(score.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(score.status().message()), HasSubstr("item 1: first.pixel: black"));
  }
}

TEST_F(HttpFrontTest, EachAddressHasItsAnswer) {
  Start();
  EXPECT_THAT(Say("GET /first.pixel/health HTTP/1.1\r\nHost: h\r\n\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Post("/first.pixel/compute", Request({kPicture})), HasSubstr("{\"rewards\":[10.0]}"));
  EXPECT_THAT(Post("/firstXpixel/compute", Request({kPicture})), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Post("/first.pixel/health", "{}"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Say("GET /first.pixel/compute HTTP/1.1\r\nHost: h\r\n\r\n"),
              StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Say("GET /" + std::string(8000, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n"),
              StartsWith("HTTP/1.1 404"));
}

TEST_F(HttpFrontTest, WhatIsWrongIsTheCallersError) {
  Start({.items_max = 2, .body_bytes_max = 5000, .silence_max = absl::Milliseconds(200)});
  EXPECT_THAT(Post("/first.pixel/compute", "nonsense"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Post("/first.pixel/compute", Request({kPicture, kPicture, kPicture})),
              HasSubstr("at most 2 items"));
  EXPECT_THAT(Post("/first.pixel/compute", "{}", "multipart/form-data; boundary=x"),
              StartsWith("HTTP/1.1 415"));
  EXPECT_THAT(Post("/first.pixel/compute", std::string(5001, ' ')), StartsWith("HTTP/1.1 413"));
  std::string chunks;  // Without a length before the body.
  for (int i = 0; i < 6; ++i) chunks += "3e8\r\n" + std::string(1000, ' ') + "\r\n";
  EXPECT_THAT(
      Say("POST /first.pixel/compute HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
          "Transfer-Encoding: chunked\r\n\r\n" +
          chunks + "0\r\n\r\n"),
      StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(
      Say("POST /first.pixel/compute HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
          "Content-Length: 100\r\n\r\n{"),
      StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Say("nonsense\r\n\r\n"), ::testing::AnyOf(StartsWith("HTTP/1.1 400"), ""));
  EXPECT_THAT(Post("/first.pixel/compute", Request({kPicture})), StartsWith("HTTP/1.1 200"))
      << "it still serves";
}

TEST_F(HttpFrontTest, AFullQueueAsksToComeAgainAndAStopAnswersWhatWaits) {
  absl::Notification released;
  scorer_->hold = &released;
  Start();
  std::string first, waiting, refused;
  std::thread scored([&] {
    first = Post("/first.pixel/compute", Request({kPicture, kPicture, kPicture, kPicture}));
  });
  scorer_->entered.WaitForNotification();
  refused = Post("/first.pixel/compute", Request({kPicture}));
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refused, HasSubstr("Retry-After: 1"));
  std::thread stop([&] { front_.reset(); });
  released.Notify();
  stop.join();
  scored.join();
  EXPECT_THAT(first, HasSubstr("{\"rewards\":[10.0,10.0,10.0,10.0]}"));
}

TEST_F(HttpFrontTest, ATakenPortAndABadAddressAreErrors) {
  Start();
  const auto at = [&](const std::string& listen) {
    return HttpFront::Start({.listen = listen}, panel_, service_, metrics_).status();
  };
  EXPECT_EQ(at(front_->endpoint()).code(), absl::StatusCode::kUnavailable);
  for (const char* bad : {"", "127.0.0.1", ":80", "127.0.0.1:x", "127.0.0.1:70000"}) {
    EXPECT_EQ(at(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace oxbow::reward
