// SPDX-License-Identifier: Apache-2.0
// The page of `oxbow compare` in headless Chromium: it fits every width, no script fails, and it
// asks for nothing. Skipped without Chromium.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "cli/report/comparison.h"
#include "config/run_config.h"
#include "tests/testing/headless_browser.h"
#include "tests/testing/made_up_run.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

constexpr int kWidths[] = {390, 800, 1400};

// Points at the last step of the first chart, as a person does.
constexpr char kAfter[] = R"js(<script>
(() => {
const of = css => [...document.querySelectorAll(css)];
const svg = document.querySelector('.chart svg'), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent('pointermove', {bubbles: true,
    clientX: box.left + box.width * svg.dataset.right / svg.viewBox.baseVal.width,
    clientY: box.top + 20}));
const root = document.documentElement;
const wide = of('.wide').filter(e => e.scrollWidth > e.clientWidth + 1);
const signed = e => getComputedStyle(e, '::before').content.includes('scroll');
setTimeout(() => parent.postMessage({width: innerWidth, problems: window.problems,
    over: root.scrollWidth - root.clientWidth, tip: document.querySelector('.tip').textContent,
    charts: of('.chart').length, cut: wide.length,
    signs: of('.wide').filter(signed).length, pictures: of('.view .part.p0').filter(e =>
        getComputedStyle(e).backgroundImage.startsWith('url("data:')).length,
    network: performance.getEntriesByType('resource')
        .filter(e => !e.name.startsWith('data:')).length}, '*'), 500);
})();
</script></body>)js";

class ComparisonBrowserTest : public ::testing::Test {
 protected:
  std::filesystem::path AddRun(const std::string& name, const std::vector<std::string>& set) {
    const std::filesystem::path run_dir = scratch_.path() / name;
    std::filesystem::create_directories(run_dir);
    const auto resolved = config::LoadRunConfig("", set, {});
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_TRUE(config::WriteResolved(*resolved, run_dir / "config.resolved.yaml").ok());
    EXPECT_TRUE(WriteFileAtomically(run_dir / "metrics.jsonl", io::MadeUpMetrics()).ok());
    io::AddMadeUpSheet(run_dir, 100, std::string(120, 'z'), 0.9);
    return run_dir;
  }

  const testing::ScopedDirectory scratch_;
};

TEST_F(ComparisonBrowserTest, FitsEveryWidthAndAsksForNothing) {
  const std::string chromium = testing::FindChromium();
  if (chromium.empty()) {
    GTEST_SKIP() << "skipped: chromium is not installed (the Debian package of that name)";
  }
  // Names and values without a place to break.
  const std::string value(90, 'v');
  const auto page =
      ComparisonPage({AddRun("a", {}), AddRun(std::string(80, 'n'), {"prompts.cache=" + value}),
                      AddRun("c", {"optimizer.learning_rate=0.125", "run.seed=7"})},
                     scratch_.path() / "probed.html");
  ASSERT_TRUE(page.ok()) << page.status();
  const std::string probed = absl::StrReplaceAll(
      *page, {{"</title>", absl::StrCat("</title>", testing::kKeepProblems)}, {"</body>", kAfter}});
  ASSERT_TRUE(WriteFileAtomically(scratch_.path() / "probed.html", probed).ok());
  const std::filesystem::path frames = scratch_.path() / "frames.html";
  ASSERT_TRUE(WriteFileAtomically(frames, testing::FramesOf("probed.html", kWidths)).ok());
  const nlohmann::json pages = testing::LookAt(chromium, absl::StrCat("file://", frames.string()),
                                               scratch_.path() / "browser", 8000);
  ASSERT_TRUE(pages.is_array()) << pages;
  ASSERT_EQ(pages.size(), std::size(kWidths));
  for (const nlohmann::json& seen : pages) {
    SCOPED_TRACE(seen["width"].dump());
    EXPECT_EQ(seen["problems"], nlohmann::json::array());
    EXPECT_EQ(seen["over"], 0) << "the page scrolls sideways";
    EXPECT_EQ(seen["network"], 0);
    EXPECT_EQ(seen["cut"], seen["signs"]) << "a table that is cut off says that it scrolls";
    if (seen["width"] == 390) {
      EXPECT_GT(seen["cut"], 0);
    }
    EXPECT_EQ(seen["pictures"], 3);
    EXPECT_GE(seen["charts"], 8);
    EXPECT_THAT(seen["tip"].get<std::string>(), ::testing::HasSubstr("step 100"));
  }
}

}  // namespace
}  // namespace oxbow::cli
