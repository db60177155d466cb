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
    verdict: text('.verdict em'), cells: of('.view .cell').length,
    network: performance.getEntriesByType('resource')
        .filter(e => !e.name.startsWith('data:')).length});
parent.postMessage(seen, '*');
})();
</script></body>)js";

// Looks at pictures as a person does: at their size, at one of them, and before and after.
constexpr char kAtPictures[] = R"js(<script>
(async () => {
const of = css => [...document.querySelectorAll(css)];
const shown = css => of(css).filter(e => e.getClientRects().length);
const root = document.documentElement, seen = {width: innerWidth};
const part = () => shown('.cell .part')[0];
seen.views = shown('.view').map(view => view.querySelector('.at').textContent);
seen.side = Math.round(part().getBoundingClientRect().width);
seen.folded = shown('.view:last-child .cell').length;
of('.more')[0].click();
seen.all = shown('.view:last-child .cell').length;
seen.over = root.scrollWidth - root.clientWidth;
const label = shown('label[for=when0]')[0];
seen.switched = label ? (label.click(), shown('.view').map(view => view.dataset.sheet)) : [];
if (label) of('label[for=when1]')[0].click();
const prompt = shown('.view .long .prompt')[0];
seen.lines = Math.round(prompt.clientHeight / parseFloat(getComputedStyle(prompt).lineHeight));
prompt.click();
seen.unfolded = Math.round(prompt.clientHeight / parseFloat(getComputedStyle(prompt).lineHeight));
// A row has its prompt and reward, and below them its pictures.
seen.table = of('.wide').filter(e => e.scrollWidth > e.clientWidth + 1).length;
seen.rows = of('.prompts .long .prompt').filter(e => e.getClientRects().length)
    .every(e => e.clientHeight <= 3.5 * parseFloat(getComputedStyle(e).lineHeight));
of('.cell .p3')[0].click();
const dialog = document.querySelector('dialog');
seen.open = dialog.open;
seen.ask = dialog.querySelector('.ask').textContent;
seen.said = [...dialog.querySelectorAll('figure')].map(figure => figure.textContent);
const images = [...dialog.querySelectorAll('img')];
await Promise.all(images.map(image => new Promise(done => {
  if (image.complete) done();
  image.addEventListener('load', done);
  image.addEventListener('error', done);
})));
seen.files = images.map(image => [image.getAttribute('src'), image.naturalWidth]);
seen.inside = dialog.scrollWidth - dialog.clientWidth;
dialog.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
seen.next = dialog.querySelector('.ask').textContent;
dialog.querySelector('.close').click();
seen.closed = !dialog.open;
seen.problems = window.problems;
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

  // The report of the run's page about itself at each width.
  nlohmann::json Look(const RunFacts& facts, const char* after = kAfter) {
    EXPECT_TRUE(WriteReport(directory_, facts).ok());
    const std::string page =
        absl::StrReplaceAll(*ReadFile(directory_ / "report.html"),
                            {{"</title>", absl::StrCat("</title>", oxbow::testing::kKeepProblems)},
                             {"</body>", after}});
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

// Promise: Pictures of any size are on the pages.
TEST_F(BrowserTest, PicturesOfARealSizeAreLargeOpenWholeAndSwitchOnANarrowScreen) {
  ASSERT_TRUE(WriteFileAtomically(directory_ / "metrics.jsonl", MadeUpMetrics()).ok());
  for (const int step : {0, 20, 40}) AddPhotos(directory_, step, 64, 512);
  const nlohmann::json pages = Look({.steps_total = 100}, kAtPictures);
  EXPECT_LT(std::filesystem::file_size(directory_ / "report.html"), kReportBytesMax);
  ASSERT_TRUE(pages.is_array()) << pages;
  ASSERT_EQ(pages.size(), std::size(kWidths));
  for (const nlohmann::json& page : pages) {
    SCOPED_TRACE(page["width"].dump());
    const bool narrow = page["width"] < 900;
    EXPECT_EQ(page["problems"], nlohmann::json::array());
    EXPECT_EQ(page["views"], narrow ? nlohmann::json({"40"}) : nlohmann::json({"0", "40"}));
    EXPECT_EQ(page["switched"], narrow ? nlohmann::json({"0"}) : nlohmann::json::array());
    EXPECT_GE(page["side"], page["width"] == 390 ? 140 : 220);
    EXPECT_EQ(page["folded"], 12);
    EXPECT_EQ(page["all"], 64);
    EXPECT_EQ(page["over"], 0) << "the page scrolls sideways";
    EXPECT_LE(page["lines"], 3);
    EXPECT_GT(page["unfolded"], page["lines"]);
    EXPECT_TRUE(page["rows"]) << "in the table of prompts, too";
    EXPECT_EQ(page["table"], 0) << "the tables of prompts fit every width";
    EXPECT_TRUE(page["open"]);
    EXPECT_EQ(page["ask"], LongPrompt(3));
    EXPECT_EQ(page["next"], LongPrompt(4)) << "as text, whatever is in it";
    ASSERT_EQ(page["said"].size(), 2u);
    EXPECT_THAT(page["said"][1].get<std::string>(),
                ::testing::AllOf(HasSubstr("After: step 40"), HasSubstr("pickscore0.31"),
                                 HasSubstr("sharpness0.69"), HasSubstr("seed 7")));
    EXPECT_EQ(page["files"], nlohmann::json::array({{"samples/step_000000/003.jpg", 512},
                                                    {"samples/step_000040/003.jpg", 512}}));
    EXPECT_EQ(page["inside"], 0);
    EXPECT_TRUE(page["closed"]);
  }
}

constexpr char kAtVideo[] = R"js(<script>
(async () => {
const one = css => document.querySelector(css);
const seen = {width: innerWidth, marks: document.querySelectorAll('.view .clip').length};
one('.cell .p1').click();
for (let i = 0; i < 100 && document.querySelectorAll('dialog .down').length < 2; ++i) {
  await new Promise(done => setTimeout(done, 50));
}
const film = one('dialog .down'), style = getComputedStyle(film);
const [frames, small] = [style.getPropertyValue('--frames'), one('dialog small').textContent];
film.getAnimations()[0].currentTime = 530;  // Half of 17 sixteenths of a second: frame 8.
Object.assign(seen, {frames, small, films: document.querySelectorAll('dialog .down').length,
    at: getComputedStyle(film).backgroundPosition, duration: style.animationDuration,
    file: style.backgroundImage.replace(/.*samples/, ''),
    side: Math.round(film.getBoundingClientRect().width),
    inside: one('dialog').scrollWidth - one('dialog').clientWidth});
one('dialog .stop').click();
seen.state = getComputedStyle(film).animationPlayState;
seen.problems = window.problems;
parent.postMessage(seen, '*');
})();
</script></body>)js";

// Promise: A video is a video everywhere.
TEST_F(BrowserTest, AVideoOfARealSizePlaysInTheDialog) {
  ASSERT_TRUE(WriteFileAtomically(directory_ / "metrics.jsonl", MadeUpMetrics()).ok());
  for (const int step : {0, 40}) AddVideos(directory_, step, 4, 416, 240, 17);
  const nlohmann::json pages = Look({.steps_total = 100}, kAtVideo);
  ASSERT_TRUE(pages.is_array()) << pages;
  ASSERT_EQ(pages.size(), std::size(kWidths));
  for (const nlohmann::json& page : pages) {
    SCOPED_TRACE(page["width"].dump());
    EXPECT_EQ(page["problems"], nlohmann::json::array());
    EXPECT_EQ(page["marks"], 2 * 4);
    EXPECT_EQ(page["films"], 2) << "before and after";
    EXPECT_EQ(page["frames"], "17");
    EXPECT_EQ(page["at"], "0px 50%") << "frame 8 of 0 to 16";
    EXPECT_EQ(page["duration"], "1.0625s");
    EXPECT_THAT(page["file"].get<std::string>(), HasSubstr("step_000000/001.film.jpg"));
    EXPECT_THAT(page["small"].get<std::string>(), HasSubstr("17 frames"));
    EXPECT_GE(page["side"], page["width"] == 390 ? 250 : 300);
    EXPECT_EQ(page["inside"], 0);
    EXPECT_EQ(page["state"], "paused");
  }
}

// Charts far down were blank on a picture of the whole page.
TEST_F(BrowserTest, NothingWaitsUntilItIsScrolledTo) {
  ASSERT_TRUE(WriteFileAtomically(directory_ / "metrics.jsonl", MadeUpMetrics()).ok());
  ASSERT_TRUE(WriteReport(directory_, {}).ok());
  EXPECT_EQ(ReadFile(directory_ / "report.html")->find("content-visibility"), std::string::npos);
}

// A run that was killed with its supervisor leaves a page that still says that it runs.
// Promise: A run's page is as new as the run.
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
  EXPECT_LT(std::filesystem::file_size(directory_ / "report.html"), kReportBytesMax);
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
