// SPDX-License-Identifier: Apache-2.0
#include "cli/report/replay_shelf.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/replay/replay_source.h"
#include "io/image.h"
#include "io/picture_file.h"
#include "io/report/html.h"
#include "io/report/picture_grid.h"
#include "io/report/svg_chart.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kEntriesShown = 12;
constexpr absl::Duration kLookEvery = absl::Seconds(10);
constexpr absl::Duration kCall = absl::Seconds(5);
constexpr char kTable[] = "best";

std::string Counted(uint64_t count, const std::string& unit) {
  return absl::StrCat(count, " ", unit, count == 1 ? "" : "s");
}

}  // namespace

std::string ReplayShelf::Section() {
  absl::MutexLock lock(&mutex_);
  const absl::Duration now = clock_.Now();
  if (now < next_) return section_;
  next_ = now + kLookEvery;
  if (!Look().ok()) section_.clear();
  return section_;
}

std::string ReplayShelf::Picture(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [_, kept] : pictures_) {
    if (kept.file == name) return kept.bytes;
  }
  return "";
}

absl::Status ReplayShelf::Look() {
  OXBOW_ASSIGN_OR_RETURN(
      const OpenedReplay opened,
      OpenReplay({.buffer = {}, .data = {}, .run_dir = run_dir_, .config = {}}, kCall));
  OXBOW_ASSIGN_OR_RETURN(const v1::InfoResponse info, opened.source->Info());
  OXBOW_ASSIGN_OR_RETURN(TopRows top, TopRows::By("reward", false, kEntriesShown));
  for (EntryId after(0);;) {
    OXBOW_ASSIGN_OR_RETURN(const auto page, opened.source->Page(kTable, after));
    if (page.empty()) break;
    for (const v1::ReplayEntry& entry : page) top.Add(RowOf(entry, {.step = info.step()}));
    after = EntryId(page.back().entry_id());
  }
  const uint64_t seen = top.seen();
  section_.clear();
  if (seen == 0) return absl::OkStatus();
  const std::vector<ReplayRow> rows = std::move(top).Take();
  std::map<uint64_t, Kept> held = std::exchange(pictures_, {});
  section_ = absl::StrCat(
      "<h2>Replay buffer</h2><p class=\"lead\">The best of ", seen,
      seen == 1 ? " entry" : " entries",
      ", each with the picture that it was kept for. One with its steps: <code>oxbow replay export "
      "ENTRY ",
      io::EscapeHtml(run_dir_), " --out DIR</code></p><div class=\"cells big\">");
  for (const ReplayRow& row : rows) {
    if (const auto found = held.find(row.entry); found != held.end()) {
      pictures_[row.entry] = std::move(found->second);
    } else if (const auto entry = opened.source->ReadPicture(EntryId(row.entry)); entry.ok()) {
      const std::string& bytes = entry->trajectory().picture();
      if (const auto facts = io::FactsOfPicture(bytes); facts.has_value()) {
        pictures_[row.entry] = {.file = absl::StrCat(row.entry, ".", facts->extension),
                                .width = facts->width,
                                .height = facts->height,
                                .bytes = bytes};
      }
    }
    section_ += EntryHtml(row);
  }
  section_ += "</div>\n";
  return absl::OkStatus();
}

// A row of frames takes the room of two pictures.
std::string ReplayShelf::EntryHtml(const ReplayRow& row) const {
  std::string picture = "<span class=\"kept none\">no picture</span>";
  bool wide = false;
  if (const auto kept = pictures_.find(row.entry); kept != pictures_.end()) {
    const auto& [file, width, height, bytes] = kept->second;
    wide = width > 2 * height;
    const bool tiny = std::max(width, height) < io::kSmallSide;
    picture =
        absl::StrCat("<a class=\"kept", tiny ? " tiny" : "", "\" href=\"replay/", file,
                     "\" target=\"_blank\"><img src=\"replay/", file, "\" width=\"", width,
                     "\" height=\"", height, "\" alt=\"picture of entry ", row.entry, "\"></a>");
  }
  return absl::StrCat("<div class=\"cell", wide ? " row" : "", "\">", picture,
                      io::PromptText(row.prompt), "<b>", io::Number(row.reward),
                      "</b><small class=\"kept\">", Counted(row.age, "step"), " old, used ",
                      Counted(row.uses, "time"), ", entry ", row.entry, "</small></div>");
}

}  // namespace oxbow::cli
