// SPDX-License-Identifier: Apache-2.0
// The served page in headless Chromium: no problem on the console, no overflow, and what is new
// appears by itself. Skipped without Chromium.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "cli/report/watch_server.h"
#include "tests/testing/headless_browser.h"
#include "tests/testing/made_up_run.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

constexpr int kWidths[] = {390, 800, 1400};
constexpr int kPatienceMs = 30'000;

// Waits for the step that was not there when the page was loaded.
constexpr char kAwaitStep[] = R"js(<script>
(() => {
const of = css => [...document.querySelectorAll(css)];
const steps = () => of('.card').filter(card => card.textContent.includes('learner steps'))
    .map(card => card.querySelector('b').textContent.trim()).join();
const first = steps(), root = document.documentElement;
const look = () => {
  if (steps() !== '110') { setTimeout(look, 100); return; }
  parent.postMessage({width: innerWidth, first, problems: window.problems,
      over: root.scrollWidth - root.clientWidth, sheets: of('.strip button').length,
      away: document.body.classList.contains('away')}, '*');
};
look();
})();
</script></body>)js";

// Hands requests on to the server of a run, with a look at its page, and a page of frames of it.
class Mirror {
 public:
  // `asked` is called after each answer about what is new.
  Mirror(int port, std::function<void()> asked) : port_(port), asked_(std::move(asked)) {
    server_.Get("/frames.html", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(testing::FramesOf("/", kWidths), "text/html");
    });
    server_.Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
      Pass(request, response);
    });
    own_port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~Mirror() {
    server_.stop();
    thread_.join();
  }
  int port() const { return own_port_; }

 private:
  void Pass(const httplib::Request& request, httplib::Response& response) {
    const auto answer = httplib::Client("127.0.0.1", port_).Get(request.target);
    if (!answer) {
      response.status = 502;
      return;
    }
    response.status = answer->status;
    // The page's policy is part of what is tried.
    response.set_header("Content-Security-Policy",
                        answer->get_header_value("Content-Security-Policy"));
    std::string body = answer->body;
    if (request.path == "/") {
      body =
          absl::StrReplaceAll(body, {{"</title>", absl::StrCat("</title>", testing::kKeepProblems)},
                                     {"</body>", kAwaitStep}});
    }
    response.set_content(body, answer->get_header_value("Content-Type"));
    if (request.path == "/state.json") asked_();
  }

  const int port_;
  const std::function<void()> asked_;
  httplib::Server server_;
  int own_port_ = 0;
  std::thread thread_;
};

// Promise: A run's page is as new as the run.
TEST(WatchBrowserTest, ANewStepAppearsByItselfAtEveryWidth) {
  const std::string chromium = testing::FindChromium();
  if (chromium.empty()) {
    GTEST_SKIP() << "skipped: chromium is not installed (the Debian package of that name)";
  }
  const testing::ScopedDirectory scratch;
  const std::filesystem::path run_dir = scratch.path() / "run";
  std::filesystem::create_directories(run_dir);
  ASSERT_TRUE(WriteFileAtomically(run_dir / "metrics.jsonl", io::MadeUpMetrics()).ok());
  for (int step = 0; step <= 100; step += 50) io::AddMadeUpSheet(run_dir, step, "", 0.005 * step);
  const auto server = WatchServer::Start(
      {.page = {.run_dir = run_dir, .replay = [] { return "<h2>Replay</h2><p>no entry</p>"; }}});
  ASSERT_TRUE(server.ok()) << server.status();
  // When all frames have shown what was there, the run goes on.
  std::atomic<int> asked = 0;
  const Mirror mirror((*server)->port(), [&] {
    if (++asked != static_cast<int>(std::size(kWidths))) return;
    io::AddMadeUpSheet(run_dir, 110, "", 0.9);
    auto file = AppendFile::Open(run_dir / "metrics.jsonl");
    EXPECT_TRUE(
        file.ok() &&
        file->Append(io::FormatMetricsLine(110, 30, {{"eval/reward_mean", 0.97}}), false).ok());
  });
  const nlohmann::json pages =
      testing::LookAt(chromium, absl::StrCat("http://127.0.0.1:", mirror.port(), "/frames.html"),
                      scratch.path() / "browser", kPatienceMs);
  ASSERT_TRUE(pages.is_array()) << pages;
  ASSERT_EQ(pages.size(), std::size(kWidths));
  for (const nlohmann::json& page : pages) {
    SCOPED_TRACE(page["width"].dump());
    EXPECT_EQ(page["first"], "100");
    EXPECT_EQ(page["problems"], nlohmann::json::array());
    EXPECT_EQ(page["over"], 0) << "the page scrolls sideways";
    EXPECT_EQ(page["sheets"], 4);
    EXPECT_FALSE(page["away"]);
  }
}

}  // namespace
}  // namespace oxbow::cli
