// SPDX-License-Identifier: Apache-2.0
#include "cli/report/live_page.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/json.h"
#include "io/report/html.h"
#include "run/run_lock.h"
#include "services/learner/record/facts_of_run.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

// After a building that took very long, say on a busy machine, the page is old for no longer.
constexpr absl::Duration kRestMax = absl::Seconds(30);

// Pictures that cannot be decoded are found when the browser asks: they have a cross then.
io::SheetImage SheetAddress(const io::Sheet& sheet, io::SpriteSize size) {
  return {absl::StrCat("sheets/", sheet.step, "/", io::SpriteName(size)), {}};
}

}  // namespace

LivePage::LivePage(Options options)
    : options_(std::move(options)),
      epoch_(absl::ToUnixMicros(absl::Now())),
      run_(options_.run_dir),
      rests_until_(options_.clock->Now()) {}

std::string LivePage::Document() {
  absl::MutexLock lock(&mutex_);
  Refresh();
  std::vector<io::PageSection> parts;
  for (const Standing& one : parts_) parts.push_back(one.part);
  return io::Page(absl::StrCat("oxbow run ", io::RunName(options_.run_dir)), io::JoinParts(parts),
                  {.how = io::Reload::kFromServer, .version = VersionOf(buildings_)});
}

std::optional<std::string> LivePage::NewSince(const std::string& have) {
  absl::MutexLock lock(&mutex_);
  Refresh();
  if (have == VersionOf(buildings_)) return std::nullopt;
  const absl::Duration begun = options_.clock->Now();
  const std::string own = absl::StrCat(epoch_, "-");
  uint64_t known = 0;
  if (!have.starts_with(own) || !absl::SimpleAtoi(have.substr(own.size()), &known)) known = 0;
  nlohmann::json state = {{"version", VersionOf(buildings_)},
                          {"order", nlohmann::json::array()},
                          {"parts", nlohmann::json::object()}};
  for (const Standing& one : parts_) {
    state["order"].push_back(one.part.id);
    if (one.changed > known) state["parts"][one.part.id] = one.part.html;
  }
  std::string text = JsonText(state);
  RestAfter(options_.clock->Now() - begun);
  return text;
}

std::string LivePage::VersionOf(uint64_t building) const {
  return absl::StrCat(epoch_, "-", building);
}

std::string LivePage::Stamp() const {
  std::error_code none;
  const auto bytes = fs::file_size(options_.run_dir / io::kMetricsFile, none);
  const auto when = fs::last_write_time(options_.run_dir / io::kMetricsFile, none);
  const auto sheets = fs::last_write_time(options_.run_dir / "samples", none);
  return absl::StrCat(none ? 0 : bytes, "-", when.time_since_epoch().count(), "-",
                      sheets.time_since_epoch().count(), "-",
                      run::IsLive(options_.run_dir) ? "live" : "ended");
}

void LivePage::Refresh() {
  const std::string stamp = Stamp();
  const absl::Duration begun = options_.clock->Now();
  if (stamp == stamp_ || (buildings_ > 0 && begun < rests_until_)) return;
  stamp_ = stamp;
  Build();
  // The first one reads all that there is; those after it, what is new.
  if (buildings_ > 1) RestAfter(options_.clock->Now() - begun);
}

void LivePage::RestAfter(absl::Duration spent) {
  if (options_.share_max <= 0) return;
  const absl::Duration now = options_.clock->Now();
  rests_until_ = std::min(std::max(rests_until_, now) + spent / options_.share_max, now + kRestMax);
}

void LivePage::Build() {
  const absl::Status read = run_.Update();
  const io::RunFacts facts =
      learner::FactsOfRun(options_.run_dir, run::IsLive(options_.run_dir), &run_.sheets());
  std::vector<io::PageSection> parts;
  if (read.ok()) {
    parts = io::ReportParts(options_.run_dir, run_, facts, SheetAddress);
  } else {  // A run that has only begun has no metrics yet.
    parts = {{"head", absl::StrCat("<h1>", io::EscapeHtml(facts.name), "</h1><p class=\"lead\">",
                                   io::EscapeHtml(std::string(read.message())), "</p>")}};
  }
  if (options_.replay) {
    if (std::string html = options_.replay(); !html.empty()) {
      parts.push_back({"replay", std::move(html)});
    }
  }
  ++buildings_;
  std::vector<Standing> standing;
  for (io::PageSection& part : parts) {
    const auto before = std::find_if(parts_.begin(), parts_.end(), [&](const Standing& one) {
      return one.part.id == part.id && one.part.html == part.html;
    });
    standing.push_back({std::move(part), before == parts_.end() ? buildings_ : before->changed});
  }
  parts_ = std::move(standing);
}

}  // namespace oxbow::cli
