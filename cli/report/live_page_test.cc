// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "cli/report/watch_server.h"
#include "tests/testing/made_up_run.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LivePageTest : public ::testing::Test {
 protected:
  LivePageTest() {
    EXPECT_TRUE(WriteFileAtomically(run_dir() / "metrics.jsonl", io::MadeUpMetrics()).ok());
    io::AddMadeUpSheet(run_dir(), 0, "", 0.1);
  }
  void Step(int step) {
    auto file = AppendFile::Open(run_dir() / "metrics.jsonl");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(
        file->Append(io::FormatMetricsLine(step, step, {{"train/grad_norm", 7}}), false).ok());
  }
  // The names of the sections that changed since `version`, which becomes the newest.
  std::vector<std::string> News(LivePage& page, std::string& version) {
    std::vector<std::string> names;
    const auto text = page.NewSince(version);
    if (!text) return names;
    const auto state = nlohmann::json::parse(*text);
    version = state["version"];
    for (const auto& [id, html] : state["parts"].items()) names.push_back(id);
    return names;
  }
  std::filesystem::path run_dir() const { return directory_.path(); }

  testing::ScopedDirectory directory_;
};

// Promise: Watching a run does not slow it.
TEST_F(LivePageTest, OnlySectionsThatChangedAreSent) {
  LivePage page({.run_dir = run_dir(), .share_max = 0});
  std::string version = "of another server";
  EXPECT_THAT(News(page, version),
              ElementsAre("config", "head", "learning", "next", "pictures", "time", "update"));
  EXPECT_THAT(page.Document(), HasSubstr(absl::StrCat("data-live=\"", version, "\"")));
  EXPECT_THAT(News(page, version), ElementsAre());
  Step(101);
  std::string late = version;
  EXPECT_THAT(News(page, version), ElementsAre("head", "update"));
  io::AddMadeUpSheet(run_dir(), 110, "", 0.9);
  EXPECT_THAT(News(page, version), ElementsAre("pictures"));
  EXPECT_THAT(News(page, late), ElementsAre("head", "pictures", "update"));
}

// Building takes 50 ms of this clock, so it may happen once in five seconds.
// Promise: Watching a run does not slow it. `oxbow watch` builds its page so seldom that this takes
// a hundredth of a core at most, however long the run and however many ask, and sends the sections
// that changed.
TEST_F(LivePageTest, ThePageIsBuiltSoSeldomThatItCostsAHundredthOfACore) {
  FakeClock clock;
  int built = 0;
  const auto replay = [&] {
    clock.Advance(absl::Milliseconds(50));
    ++built;
    return std::string();
  };
  LivePage page({.run_dir = run_dir(), .replay = replay, .clock = &clock});
  std::string version;
  News(page, version);
  for (int step = 101; step <= 400; ++step) {
    Step(step);
    News(page, version);
    clock.Advance(absl::Milliseconds(200));
  }
  // A minute of steps, all of them shown in the end.
  EXPECT_GE(built, 60 / 5);
  EXPECT_LE(built, 60 / 5 + 2);
  clock.Advance(absl::Seconds(6));
  News(page, version);
  EXPECT_THAT(page.Document(), HasSubstr("<b>400</b>"));
}

}  // namespace
}  // namespace oxbow::cli
