// SPDX-License-Identifier: Apache-2.0
// The page of a run in headless Chromium: nothing is wider than the window, no script fails, the
// slider changes the pictures, and values appear under the pointer. Skipped without Chromium.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "io/report/report.h"
#include "tests/testing/headless_browser.h"
#include "tests/testing/made_up_run.h"

namespace oxbow::io {
namespace {

using ::testing::HasSubstr;

constexpr int kWidths[] = {390, 800, 1400};
constexpr uintmax_t kPageBytesMax = 3'000'000;

// After the page's own script: uses the page as a person does and tells the page around it what was
// seen.
constexpr char kAfter[] = R"js(<script>
(() => {
const of = css => [...document.querySelectorAll(css)];
const text = css => of(css).map(element => element.textContent.trim());
const wide = of('body *').filter(e => {
  for (let up = e.parentElement; up; up = up.parentElement) {
    if (['auto', 'hidden'].includes(getComputedStyle(up).overflowX)) return false;
  }
  return e.getBoundingClientRect().right > innerWidth + 1;
});
const slider = document.querySelector('#slider'), seen = {};
const picture = () => getComputedStyle(of('.view')[1].querySelector('.part')).backgroundImage;
seen.last = text('.view .at');
const before = picture();
slider.value = 1;
slider.dispatchEvent(new Event('input'));
seen.slid = text('.view .at');
seen.changed = picture() !== before;
const svg = document.querySelector('.chart svg'), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent('pointermove', {bubbles: true,
    clientX: box.left + box.width * svg.dataset.right / svg.viewBox.baseVal.width,
    clientY: box.top + 20}));
seen.state = text('.state');
seen.tip = document.querySelector('.tip').textContent;
// Text may leave its box without the box being too wide: a long name of a run did.
const root = document.documentElement;
seen.over = root.scrollWidth - root.clientWidth;
Object.assign(seen, {width: innerWidth, problems: window.problems,
    wide: wide.slice(0, 3).map(e => e.outerHTML.slice(0, 80)),
    headings: text('h2'), charts: text('.chart h3'),
    empty: of('.chart').filter(e => !e.querySelector('polyline,circle,rect.area')).length,
    verdict: text('.verdict em'), cells: of('.view .cells div').length,
    network: performance.getEntriesByType('resource')
        .filter(e => !e.name.startsWith('data:')).length});
parent.postMessage(seen, '*');
})();
</script></body>)js";

class BrowserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (chromium_.empty()) {
      GTEST_SKIP() << "skipped: chromium is not installed (the Debian package of that name)";
    }
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }

  // What the page of the run says of itself at each width.
  nlohmann::json Look(const RunFacts& facts) {
    EXPECT_TRUE(WriteReport(directory_, facts).ok());
    const std::string page =
        absl::StrReplaceAll(*ReadFile(directory_ / "report.html"),
                            {{"</title>", absl::StrCat("</title>", oxbow::testing::kKeepProblems)},
                             {"</body>", kAfter}});
    EXPECT_TRUE(WriteFileAtomically(directory_ / "probed.html", page).ok());
    EXPECT_TRUE(WriteFileAtomically(directory_ / "frames.html",
                                    oxbow::testing::FramesOf("probed.html", kWidths))
                    .ok());
    return oxbow::testing::LookAt(chromium_,
                                  absl::StrCat("file://", (directory_ / "frames.html").string()),
                                  directory_ / "browser", 8000);
  }

  const std::string chromium_ = oxbow::testing::FindChromium();
  const std::filesystem::path directory_ =
      std::filesystem::path(::testing::TempDir()) / "browser_test" /
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(BrowserTest, FitsEveryWidthAndShowsPicturesAndValues) {
  ASSERT_TRUE(WriteFileAtomically(directory_ / "metrics.jsonl", MadeUpMetrics()).ok());
  for (int step = 0; step <= 100; step += 10) {
    AddMadeUpSheet(directory_, step, absl::StrCat("held-out prompts, step ", step), 0.009 * step);
  }
  const nlohmann::json pages =
      Look({.head = {{"method", "grpo"}, {"command", std::string(300, 'x')}},
            .next_commands = {"oxbow eval --run " + std::string(200, 'y')},
            .steps_total = 100,
            .full_reward = 1});
  ASSERT_TRUE(pages.is_array()) << pages;
  ASSERT_EQ(pages.size(), std::size(kWidths));
  for (const nlohmann::json& page : pages) {
    SCOPED_TRACE(page["width"].dump());
    EXPECT_EQ(page["problems"], nlohmann::json::array());
    EXPECT_EQ(page["wide"], nlohmann::json::array());
    EXPECT_EQ(page["over"], 0) << "the page scrolls sideways";
    EXPECT_EQ(page["network"], 0);
    EXPECT_EQ(page["empty"], 0);
    EXPECT_EQ(page["verdict"].size(), 5u);
    EXPECT_EQ(page["cells"], 2 * 64);
    EXPECT_EQ(page["last"], (nlohmann::json{"0", "100"}));
    EXPECT_EQ(page["slid"], (nlohmann::json{"0", "10"}));
    EXPECT_TRUE(page["changed"]);
    EXPECT_THAT(page["tip"].get<std::string>(), HasSubstr("step 100"));
    EXPECT_THAT(page["tip"].get<std::string>(), HasSubstr("0.9618"));
    EXPECT_THAT(page["headings"].get<std::vector<std::string>>(),
                ::testing::ElementsAre("Before and after", "Prompts over the steps",
                                       "Does it learn, without cheating?", "Is the update healthy?",
                                       "Where does the time go?", "What next"));
    EXPECT_GE(page["charts"].size(), 10u);
  }
}

// A run that was killed with its supervisor leaves a page that still says that it runs.
TEST_F(BrowserTest, APageThatNobodyWritesAnyMoreStopsToLoadItselfAndSaysSo) {
  ASSERT_TRUE(WriteFileAtomically(directory_ / "metrics.jsonl", MadeUpMetrics()).ok());
  for (int step = 0; step <= 100; step += 50) AddMadeUpSheet(directory_, step, "", 0.009 * step);
  const int64_t now = time(nullptr);
  for (const auto& [age, state] : std::vector<std::pair<int64_t, std::string>>{
           {60, "running"}, {660, "nothing new for 11 min; it may have been killed"}}) {
    const nlohmann::json pages =
        Look({.live = true, .written = now - age, .steps_total = 200, .full_reward = 1});
    ASSERT_TRUE(pages.is_array()) << pages;
    for (const nlohmann::json& page : pages) {
      EXPECT_THAT(page["state"].dump(), HasSubstr(state));
      EXPECT_EQ(page["problems"], nlohmann::json::array());
    }
  }
}

// A page of a long run with large pictures opens from disk as a small file, and asks for nothing.
TEST_F(BrowserTest, StaysSmallAfterAThousandStepsAndAHundredSheets) {
  ASSERT_TRUE(WriteFileAtomically(directory_ / "metrics.jsonl", MadeUpMetrics(1000)).ok());
  for (int step = 0; step < 1000; step += 10) {
    AddMadeUpSheet(directory_, step, absl::StrCat("step ", step), 0.001 * step, /*side=*/16);
  }
  const nlohmann::json pages =
      Look({.head = {{"method", "grpo"}}, .steps_total = 1000, .full_reward = 1});
  EXPECT_LT(std::filesystem::file_size(directory_ / "report.html"), kPageBytesMax);
  ASSERT_TRUE(pages.is_array()) << pages;
  ASSERT_EQ(pages.size(), std::size(kWidths));
  for (const nlohmann::json& page : pages) {
    SCOPED_TRACE(page["width"].dump());
    EXPECT_EQ(page["problems"], nlohmann::json::array());
    EXPECT_EQ(page["network"], 0);
    EXPECT_EQ(page["over"], 0);
    EXPECT_EQ(page["last"], (nlohmann::json{"0", "990"}));
  }
}

}  // namespace
}  // namespace oxbow::io
