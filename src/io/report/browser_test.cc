// SPDX-License-Identifier: Apache-2.0
// The page of a run in headless Chromium: nothing is wider than the window, no script fails, the
// slider changes the pictures, and values appear under the pointer. Skipped without Chromium.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "io/report/report.h"
#include "tests/testing/made_up_run.h"

namespace oxbow::io {
namespace {

using ::testing::HasSubstr;

constexpr int kWidths[] = {390, 800, 1400};
constexpr uintmax_t kPageBytesMax = 3'000'000;

std::string Output(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string output;
  char buffer[1 << 14];
  for (size_t count = 0; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    output.append(buffer, count);
  }
  pclose(pipe);
  return output;
}

// Before the page's own script: keeps its errors. After it: uses the page as a person does and
// tells the page around it what was seen.
constexpr char kBefore[] = R"js(<script>
window.problems = [];
for (const kind of ['error', 'warn', 'assert']) {
  console[kind] = (...said) => { window.problems.push(kind + ': ' + said.join(' ')); };
}
window.onerror = what => { window.problems.push(String(what)); };
window.onunhandledrejection = event => { window.problems.push(String(event.reason)); };
document.addEventListener('securitypolicyviolation', e => window.problems.push(e.blockedURI));
</script>)js";
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
    chromium_ = Output("command -v chromium || command -v chromium-browser || true");
    if (chromium_.empty()) {
      GTEST_SKIP() << "skipped: chromium is not installed (the Debian package of that name)";
    }
    chromium_.erase(chromium_.find_last_not_of('\n') + 1);
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }

  // What the page of the run says of itself at each width.
  nlohmann::json Look(const RunFacts& facts) {
    EXPECT_TRUE(WriteReport(directory_, facts).ok());
    const std::string page =
        absl::StrReplaceAll(*ReadFile(directory_ / "report.html"),
                            {{"</title>", absl::StrCat("</title>", kBefore)}, {"</body>", kAfter}});
    EXPECT_TRUE(WriteFileAtomically(directory_ / "probed.html", page).ok());
    std::string frames;
    for (const int width : kWidths) {
      absl::StrAppendFormat(&frames, "<iframe src=probed.html width=%d height=900></iframe>",
                            width);
    }
    EXPECT_TRUE(
        WriteFileAtomically(directory_ / "frames.html",
                            absl::StrCat("<style>iframe{border:0}</style><pre id=out></pre><script>"
                                         "const seen=[];onmessage=e=>{seen.push(e.data);"
                                         "out.textContent=JSON.stringify(seen)}</script>",
                                         frames))
            .ok());
    const std::string dom = Output(absl::StrCat(
        "timeout 120 ", chromium_,
        " --headless --no-sandbox --disable-gpu --window-size=3000,1200 --virtual-time-budget=8000"
        " --user-data-dir=",
        (directory_ / "browser").string(), " --dump-dom file://",
        (directory_ / "frames.html").string(), " 2>/dev/null"));
    const size_t begin = dom.find("<pre id=\"out\">"), end = dom.find("</pre>", begin);
    if (begin == std::string::npos || end == std::string::npos) return dom;
    const std::string text = dom.substr(begin + 14, end - begin - 14);
    return nlohmann::json::parse(
        absl::StrReplaceAll(text, {{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}}), nullptr, false);
  }

  std::string chromium_;
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
                                       "Does it learn, and honestly?", "Is the update healthy?",
                                       "Where does the time go?", "What next"));
    EXPECT_GE(page["charts"].size(), 10u);
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
