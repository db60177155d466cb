// SPDX-License-Identifier: Apache-2.0
#include "cli/report/watch_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "io/image.h"
#include "run/run_lock.h"
#include "tests/testing/made_up_run.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class WatchServerTest : public ::testing::Test {
 protected:
  void Log(int step, double reward) {
    auto file = AppendFile::Open(run_dir() / "metrics.jsonl");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Append(absl::StrCat("{\"step\":", step, ",\"eval/reward_mean\":", reward,
                                          ",\"train/grad_norm\":1,\"time/update_s\":1}\n"),
                             false)
                    .ok());
  }
  std::filesystem::path run_dir() const { return directory_.path(); }
  // Each question is answered with what is there now.
  LivePage::Options Page() const { return {.run_dir = run_dir(), .share_max = 0}; }

  testing::ScopedDirectory directory_;
};

httplib::Client ClientOf(const WatchServer& server) {
  return httplib::Client("127.0.0.1", server.port());
}

TEST_F(WatchServerTest, ThePageFollowsTheRunAndSaysWhenItIsLive) {
  const auto server = WatchServer::Start({.page = Page()});
  ASSERT_TRUE(server.ok()) << server.status();
  httplib::Client client = ClientOf(**server);
  EXPECT_EQ(client.Get("/")->status, 200) << "before the first step";
  Log(0, 0.5);
  const auto first = nlohmann::json::parse(client.Get("/state.json")->body);
  EXPECT_THAT(first["parts"]["learning"].get<std::string>(), HasSubstr("Held-out reward"));
  const std::string have = absl::StrCat("/state.json?have=", first["version"].get<std::string>());
  EXPECT_EQ(client.Get(have)->status, 204);
  Log(10, 0.75);
  const auto second = client.Get(have);
  ASSERT_EQ(second->status, 200);
  EXPECT_THAT(second->body, HasSubstr("0.75"));
  EXPECT_THAT(second->body, Not(HasSubstr("running")));
  const auto lock = run::RunLock::Take(run_dir(), {.program = "a test"});
  EXPECT_THAT(client.Get(have)->body, HasSubstr("running"));
}

// At every size that runs have: a sheet of 64 pictures of 256 px and more was answered with 404.
// Promise: Pictures of any size are on the pages.
TEST_F(WatchServerTest, PicturesOfEverySizeAreServedAndOtherFilesAreNot) {
  Log(0, 0.5);
  const auto server = WatchServer::Start({.page = Page()});
  ASSERT_TRUE(server.ok()) << server.status();
  httplib::Client client = ClientOf(**server);
  for (const int side : {96, 128, 256, 512, 1024}) {
    std::filesystem::remove_all(run_dir() / "samples");
    io::AddPhotos(run_dir(), 0, 64, side);
    const std::string page = client.Get("/")->body;
    EXPECT_THAT(page, HasSubstr("url(sheets/0/large)"));
    const std::string file = absl::StrCat("samples/step_000000/063.", side > 256 ? "jpg" : "png");
    EXPECT_THAT(page, HasSubstr(absl::StrCat("href=\"", file, "\"")));
    for (const char* const size : {"small", "middle", "large"}) {
      const auto sheet = client.Get(absl::StrCat("/sheets/0/", size));
      ASSERT_EQ(sheet->status, 200) << side << " " << size;
      EXPECT_TRUE(io::DecodeImage(sheet->body).ok()) << side << " " << size;
    }
    const auto picture = client.Get("/" + file);
    EXPECT_EQ(picture->body, *ReadFile(run_dir() / file)) << side;
    EXPECT_EQ(picture->get_header_value("Content-Type"), side > 256 ? "image/jpeg" : "image/png");
  }
  EXPECT_EQ(client.Get("/samples/step_000000/eval.png")->status, 200);
  for (const char* path :
       {"/sheets/7/large", "/sheets/99999999999999999999/small", "/sheets/../metrics.jsonl",
        "/metrics.jsonl", "/../../etc/passwd", "/replay/1.jpg", "/samples/step_000000/eval.jsonl",
        "/samples/step_000000/999.jpg", "/samples/step_000000/..", "/samples/../metrics.jsonl"}) {
    EXPECT_EQ(client.Get(path)->status, 404) << path;
  }
}

TEST_F(WatchServerTest, ReplayEntriesAreOnThePage) {
  Log(0, 0.5);
  const auto server = WatchServer::Start(
      {.page = {.run_dir = run_dir(), .replay = [] { return "<h2>Replay</h2>"; }},
       .replay_picture = [](const std::string& name) { return name == "7.jpg" ? "bytes" : ""; }});
  httplib::Client client = ClientOf(**server);
  EXPECT_THAT(client.Get("/")->body, HasSubstr("<h2>Replay</h2>"));
  const auto picture = client.Get("/replay/7.jpg");
  EXPECT_EQ(picture->body, "bytes");
  EXPECT_EQ(picture->get_header_value("Content-Type"), "image/jpeg");
  for (const char* path : {"/replay/7.png", "/replay/8.jpg", "/replay/", "/replay/../x"}) {
    EXPECT_EQ(client.Get(path)->status, 404) << path;
  }
}

TEST_F(WatchServerTest, APortThatIsTakenAndARunThatIsNotAreOneLine) {
  const auto server = WatchServer::Start({.page = Page()});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto second = WatchServer::Start({.page = Page(), .port = (*server)->port()});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable) << second.status();
  EXPECT_EQ(WatchServer::Start({.page = {.run_dir = run_dir() / "none"}}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace oxbow::cli
