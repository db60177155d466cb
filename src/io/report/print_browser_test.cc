// SPDX-License-Identifier: Apache-2.0
// The page of a run on paper, printed by headless Chromium. Skipped without Chromium.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "io/report/report.h"
#include "tests/testing/headless_browser.h"
#include "tests/testing/made_up_run.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::io {
namespace {

// A4 and Letter between margins of 1 cm, at 96 pixels an inch.
constexpr int kPaperWidths[] = {718, 740};
constexpr char kDark[] = " --blink-settings=preferredColorScheme=0";

constexpr char kAfter[] = R"js(<script>
const of = css => [...document.querySelectorAll(css)];
const root = document.documentElement, style = getComputedStyle(document.body);
parent.postMessage({width: innerWidth, problems: window.problems,
    over: root.scrollWidth - root.clientWidth,
    cut: of('.wide,pre').filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.className),
    controls: of('details,.slide,.strip')
        .filter(e => getComputedStyle(e).display !== 'none').length,
    charts: of('.chart').length, ink: style.color, paper: style.backgroundColor}, '*');
</script></body>)js";

class PrintBrowserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (chromium_.empty()) {
      GTEST_SKIP() << "skipped: chromium is not installed (the Debian package of that name)";
    }
    ASSERT_TRUE(WriteFileAtomically(run_.path() / "metrics.jsonl", MadeUpMetrics()).ok());
    for (int step = 0; step <= 100; step += 50) AddMadeUpSheet(run_.path(), step, "", 0.009 * step);
    const RunFacts facts{.head = {{"method", "grpo"}, {"command", std::string(300, 'x')}},
                         .next_commands = {"oxbow eval --run " + std::string(200, 'y')},
                         .steps_total = 100,
                         .full_reward = 1};
    ASSERT_TRUE(WriteReport(run_.path(), facts).ok());
  }

  std::string AddressOf(const std::string& file) const {
    return absl::StrCat("file://", (run_.path() / file).string());
  }

  const std::string chromium_ = oxbow::testing::FindChromium();
  const oxbow::testing::ScopedDirectory run_;
};

// A frame has no paper: the rules for paper are made rules for everything.
TEST_F(PrintBrowserTest, NothingIsCutOffControlsAreGoneAndInkIsDark) {
  const std::string page = *ReadFile(run_.path() / "report.html");
  ASSERT_THAT(page, ::testing::HasSubstr("@media print{"));
  const std::string probed = absl::StrReplaceAll(
      page, {{"@media print{", "@media all{"},
             {"@media screen", "@media print"},
             {"</title>", absl::StrCat("</title>", oxbow::testing::kKeepProblems)},
             {"</body>", kAfter}});
  ASSERT_TRUE(WriteFileAtomically(run_.path() / "probed.html", probed).ok());
  ASSERT_TRUE(WriteFileAtomically(run_.path() / "frames.html",
                                  oxbow::testing::FramesOf("probed.html", kPaperWidths))
                  .ok());
  const nlohmann::json pages = oxbow::testing::LookAt(chromium_ + kDark, AddressOf("frames.html"),
                                                      run_.path() / "browser", 8000);
  ASSERT_TRUE(pages.is_array()) << pages;
  ASSERT_EQ(pages.size(), std::size(kPaperWidths));
  for (const nlohmann::json& seen : pages) {
    SCOPED_TRACE(seen["width"].dump());
    EXPECT_EQ(seen["problems"], nlohmann::json::array());
    EXPECT_EQ(seen["over"], 0);
    EXPECT_EQ(seen["cut"], nlohmann::json::array());
    EXPECT_EQ(seen["controls"], 0);
    EXPECT_GE(seen["charts"], 10);
    EXPECT_EQ(seen["ink"], "rgb(29, 33, 38)");
    EXPECT_EQ(seen["paper"], "rgb(255, 255, 255)");
  }
}

TEST_F(PrintBrowserTest, IsAFewPages) {
  const std::string file = (run_.path() / "report.pdf").string();
  oxbow::testing::OutputOf(absl::StrCat(
      "timeout 120 ", chromium_, kDark,
      " --headless --no-sandbox --disable-gpu --no-pdf-header-footer --print-to-pdf=", file,
      " --user-data-dir=", (run_.path() / "browser").string(), " ", AddressOf("report.html"),
      " 2>&1"));
  const absl::StatusOr<std::string> printed = ReadFile(file);
  ASSERT_TRUE(printed.ok()) << printed.status();
  int pages = 0;
  for (size_t at = 0; (at = printed->find("/Type /Page\n", at)) != std::string::npos; ++at) ++pages;
  EXPECT_GE(pages, 3);
  EXPECT_LE(pages, 12);
}

}  // namespace
}  // namespace oxbow::io
