// SPDX-License-Identifier: Apache-2.0
#include "io/report/report.h"

#include <sys/stat.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "core/reward/synthetic_task.h"
#include "io/report/svg_chart.h"
#include "io/report/verdict.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {

namespace {

constexpr uint64_t kConfigBytesMax = 1 << 20;
constexpr char kSpeckleHint[] =
    "Grey dust where a clean picture is black or white: what a reward that reads digits does not "
    "see.";

constexpr char kSaturatedHint[] =
    "Share of pixels that are burnt out, black or of the strongest colour.";
constexpr char kFineDetailHint[] =
    "Energy of the highest frequencies: noise and grain raise it, blur lowers it.";
constexpr char kSharpnessHint[] =
    "Contrast from pixel to pixel by that over four pixels: blur lowers it.";

// `hint` is shown under the pointer.
std::string Card(std::string_view value, std::string_view label, std::string_view hint = "") {
  return absl::StrCat("<div class=\"card\"",
                      hint.empty() ? "" : absl::StrCat(" title=\"", EscapeHtml(hint), "\""), "><b>",
                      std::string(value), "</b><span>", EscapeHtml(label), "</span></div>\n");
}

// "0.52 → 0.97"; empty if it was never measured.
std::string BeforeAfter(const History& history, const std::string& name) {
  const auto first = history.First(name), last = history.Last(name);
  if (!first) return "";
  if (last->x == first->x) return Number(last->y);
  return absl::StrCat("<em>", Number(first->y), " &rarr;</em> ", Number(last->y));
}

std::string Duration(double seconds) {
  if (seconds < 120) return absl::StrFormat("%.3g s", seconds);
  if (seconds < 7200) return absl::StrFormat("%.0f min", seconds / 60);
  return absl::StrFormat("%.1f h", seconds / 3600);
}

// Mean wall time between the first and last step, so that start-up is not counted.
std::optional<double> SecondsPerStep(const History& history) {
  const auto first = history.First(metric::kTimeWallS), last = history.Last(metric::kTimeWallS);
  if (!first || last->x <= first->x) return std::nullopt;
  return (last->y - first->y) / (last->x - first->x);
}

std::optional<double> ImagesPerSecond(const History& history) {
  double images = 0, seconds = 0;
  for (const Point& point : history.Column(metric::kTrainSamples)) images += point.y;
  for (const Point& point : history.Column(metric::kTimeStepS))
    seconds += point.x > 0 ? point.y : 0;
  images *= history.Weight(metric::kTrainSamples);
  seconds *= history.Weight(metric::kTimeStepS);
  if (!(images > 0) || !(seconds > 0)) return std::nullopt;
  return images / seconds;
}

std::string Headline(const History& whole, const RunFacts& facts) {
  History rest;
  const History& history = Comparable(whole, facts, rest);
  std::string out = "<div class=\"cards\">\n";
  const std::string since =
      facts.same_since == 0 ? "" : absl::StrCat(", since step ", facts.same_since);
  const auto add_change = [&](const std::string& name, const std::string& label,
                              std::string_view hint = "") {
    if (const std::string change = BeforeAfter(history, name); !change.empty()) {
      out += Card(change, label + since, hint);
    }
  };
  add_change(metric::kEvalRewardMean, absl::StrCat("held-out ", facts.reward_name));
  for (const std::string& name : history.NamesWithPrefix("eval/")) {
    const auto reward = metric::kEvalRewardNameMean.ValueIn(name);
    if (!reward || reward::SaysLayout(*reward) || *reward == facts.reward_name) continue;
    add_change(name, absl::StrCat("held-out ", std::string(*reward)));
  }
  add_change(metric::kEvalSpeckleMean, "speckle, lower is cleaner", kSpeckleHint);
  add_change(metric::kEvalMinorityShare, "share of the rarer layout");
  add_change(metric::kEvalSaturatedShare, "saturated pixels", kSaturatedHint);
  add_change(metric::kEvalFineDetail, "fine detail", kFineDetailHint);
  add_change(metric::kEvalSharpness, "sharpness", kSharpnessHint);
  out += Card(facts.steps_total > 0
                  ? absl::StrFormat("%.0f <em>of %d</em>", history.last_step(), facts.steps_total)
                  : absl::StrFormat("%.0f", history.last_step()),
              "learner steps");
  if (const auto wall = history.Last(metric::kTimeWallS)) {
    out += Card(Duration(wall->y), "wall time");
  }
  if (const auto per_step = SecondsPerStep(history)) {
    out += Card(absl::StrFormat("%.3g s", *per_step), "per step");
  }
  if (const auto rate = ImagesPerSecond(history)) {
    out += Card(Number(*rate), "images per second, mean of the run");
  }
  return out + "</div>\n";
}

std::string Head(const RunFacts& facts, const std::string& name) {
  std::string out = absl::StrCat("<h1>", EscapeHtml(name),
                                 facts.live ? "<span class=\"state\">&#9679; running</span>" : "",
                                 "</h1><dl class=\"facts\">");
  for (const auto& [label, value] : facts.head) {
    absl::StrAppend(&out, "<div><dt>", EscapeHtml(label), "</dt><dd>", EscapeHtml(value),
                    "</dd></div>");
  }
  return out + "</dl>\n";
}

std::string VerdictHtml(const Verdict& verdict) {
  std::string out = "<section class=\"verdict\" aria-label=\"verdict\"><ul>\n";
  for (const VerdictLine& line : verdict) {
    const char* style = "unknown";
    if (line.level != Level::kUnknown) style = LevelWord(line.level);
    absl::StrAppend(&out, "<li><span>", line.topic, "</span><em class=\"", style, "\">",
                    LevelWord(line.level), "</em><span>", EscapeHtml(line.says), "</span>");
    if (!line.advice.empty()) {
      absl::StrAppend(&out, "<small>&rarr; ", EscapeHtml(line.advice), "</small>");
    }
    out += "</li>\n";
  }
  return out + "</ul></section>\n";
}

std::string NextCommands(const RunFacts& facts) {
  if (facts.next_commands.empty()) return "";
  std::string out = "<h2>What next</h2><pre>";
  for (const std::string& command : facts.next_commands) {
    absl::StrAppend(&out, EscapeHtml(command), "\n");
  }
  return out + "</pre>\n";
}

std::string Configuration(const std::filesystem::path& run_dir) {
  const auto config = ReadFile(run_dir / "config.resolved.yaml", kConfigBytesMax);
  if (!config.ok()) return "";
  return absl::StrCat("<details><summary>Configuration of this run</summary><pre>",
                      EscapeHtml(*config), "</pre></details>\n");
}

}  // namespace

absl::Status RunReading::Update() {
  sheets_ = SheetsOf(run_dir_, &cache_);
  if (cache_.size() > 4 * kSheetsMax) cache_.clear();  // Others are chosen as a run grows.
  return UpdateHistory();
}

absl::Status RunReading::UpdateHistory() {
  absl::Status status = TakeNewLines();
  if (!status.ok()) {
    history_ = History();
    bytes_ = 0;
  }
  return status;
}

absl::Status RunReading::TakeNewLines() {
  const std::filesystem::path path = run_dir_ / kMetricsFile;
  struct stat now {};
  if (stat(path.c_str(), &now) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot open: ", path.string()));
  }
  const auto size = static_cast<uint64_t>(now.st_size);
  if (now.st_ino != inode_ || size < bytes_) {
    history_ = History();
    bytes_ = 0;
    inode_ = now.st_ino;
  }
  return ReadMetricsFrom(path, bytes_, [this](const auto& line) { history_.Add(line); });
}

std::string RunName(const std::filesystem::path& run_dir) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(run_dir, ignored);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::vector<PageSection> ReportParts(const std::filesystem::path& run_dir, const RunReading& run,
                                     const RunFacts& facts, const SheetSource& source) {
  const History& history = run.history();
  const std::string head = Head(facts, RunName(run_dir));
  if (history.empty()) {
    return {{"head", absl::StrCat(head, "<p class=\"lead\">No step has been logged yet.</p>\n")},
            {"config", Configuration(run_dir)}};
  }
  std::vector<PageSection> parts = {
      {"head",
       absl::StrCat(head, VerdictHtml(VerdictOf(history, facts)), Headline(history, facts))},
      {"pictures", Gallery(run.sheets(), source, facts.live, facts.evaluation_failure)}};
  for (PageSection& section : PanelSections(history, facts)) parts.push_back(std::move(section));
  parts.push_back({"next", NextCommands(facts)});
  parts.push_back({"config", Configuration(run_dir)});
  return parts;
}

std::string JoinParts(const std::vector<PageSection>& parts) {
  std::string body;
  for (const PageSection& part : parts) {
    absl::StrAppend(&body, "<section id=\"", part.id, "\">", part.html, "</section>\n");
  }
  return body;
}

absl::Status WriteReport(const std::filesystem::path& run_dir, const RunFacts& facts) {
  RunReading run(run_dir);
  return WriteReport(run_dir, facts, run);
}

absl::Status WriteReport(const std::filesystem::path& run_dir, const RunFacts& facts,
                         RunReading& run) {
  const auto inside = [](const Sheet& sheet, SpriteSize size) -> SheetImage {
    Sprite sprite = SpriteOf(sheet, size);
    return {sprite.bytes.empty() ? "" : DataUri(sprite), std::move(sprite.trouble)};
  };
  OXBOW_RETURN_IF_ERROR(run.Update());
  return WriteFileAtomically(
      run_dir / "report.html",
      Page(absl::StrCat("oxbow run ", RunName(run_dir)),
           JoinParts(ReportParts(run_dir, run, facts, inside)),
           {.how = facts.live ? Reload::kItself : Reload::kNever, .written = facts.written}));
}

}  // namespace oxbow::io
