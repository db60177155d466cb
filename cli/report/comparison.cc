// SPDX-License-Identifier: Apache-2.0
#include "cli/report/comparison.h"

#include <google/protobuf/message.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/first_part.h"
#include "base/statistics.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/report/run_summary.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "config/run_config.h"
#include "config/yaml_message.h"
#include "io/metrics_file.h"
#include "io/report/gallery.h"
#include "io/report/html.h"
#include "io/report/report.h"
#include "io/report/sheets.h"
#include "io/report/svg_chart.h"
#include "metrics/step_metrics.h"
#include "run/rewards.h"
#include "services/learner/record/facts_of_run.h"

namespace oxbow::cli {

namespace {

struct CompareFlags {
  std::vector<std::string> runs;
  std::string out = "comparison.html";
};

absl::Status Compare(const CompareFlags& flags) {
  const std::vector<std::filesystem::path> run_dirs(flags.runs.begin(), flags.runs.end());
  OXBOW_RETURN_IF_ERROR(CheckPlace(flags.out));
  OXBOW_ASSIGN_OR_RETURN(const std::string page, ComparisonPage(run_dirs, flags.out));
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(flags.out, page));
  std::cout << DifferencesText(run_dirs) << "\n";
  if (const std::string apart = RewardsApart(run_dirs); !apart.empty()) std::cout << apart << "\n";
  std::cout << flags.out << "\n";
  return absl::OkStatus();
}

namespace fs = std::filesystem;
namespace pb = google::protobuf;

constexpr size_t kPicturesBytesMax = 3 << 20;  // All runs together.
constexpr size_t kRewardsShown = 400;

struct ComparedRun {
  RunSummary summary;
  io::History history;
  std::vector<io::Sheet> sheets;
  std::optional<v1::RunConfig> config;
};

struct Panel {
  const char* title;
  const char* unit;
  std::string metric;
  bool from_zero = true;   // Its numbers have a natural 0, at which their axis begins.
  bool of_reward = false;  // On the reward's own scale.
};

const std::vector<Panel>& Panels() {
  static const auto& panels = *new std::vector<Panel>{
      {"Held-out reward", "", metric::kEvalRewardMean, false, true},
      {"Training reward", "mean of a step", metric::kTrainRewardMean, false, true},
      {"Groups without a signal", "share", metric::kTrainRewardZeroStdRatio},
      {"Speckle", "lower is cleaner", metric::kEvalSpeckleMean},
      {"Layouts", "share of the rarer one", metric::kEvalMinorityShare},
      {"Saturated pixels", "share", metric::kEvalSaturatedShare},
      {"Fine detail", "energy of the highest frequencies", metric::kEvalFineDetail},
      {"Sharpness", "contrast over one pixel by that over four", metric::kEvalSharpness, false},
      {"Distance from the base model's pictures", "1 is that of two prompts",
       metric::kEvalBaseDistance},
      {"Variety within a group", "1 is black to white", metric::kTrainGroupDistanceMean},
      {"Gradient norm", "before clipping", metric::kTrainGradNorm},
      {"Movement of the weights", "distance in a step", metric::kTrainUpdateNorm},
      {"Distance from the base model", "of the weights", metric::kTrainBaseDistance},
      {"Clip fraction", "share of ratios clipped", metric::kTrainClipFracTotal},
      {"Step time", "seconds", metric::kTimeStepS},
      {"Throughput", "images per second", metric::kThroughputSamplesPerS}};
  return panels;
}

// The text of one dotted key; "" for a key that this binary does not know.
std::string TextOf(const pb::Message& config, const std::string& key) {
  const size_t dot = key.find('.');
  const auto* const field = config.GetDescriptor()->FindFieldByName(key.substr(0, dot));
  if (field == nullptr) return "";
  if (dot == std::string::npos) return config::FieldText(config, *field);
  return TextOf(config.GetReflection()->GetMessage(config, field), key.substr(dot + 1));
}

// The settings of a run but for its name, its place and its seed; its own name if none are known.
std::string ComparedKindOf(const ComparedRun& run) {
  if (!run.config) return absl::StrCat("run ", run.summary.name);
  v1::RunConfig config = *run.config;
  for (const char* const key : {"name", "directory", "seed"}) {
    config.mutable_run()->GetReflection()->ClearField(
        config.mutable_run(), v1::RunSection::descriptor()->FindFieldByName(key));
  }
  return config.SerializeAsString();
}

// Runs that differ in their seed alone, in the order of the first of each.
std::vector<std::vector<const ComparedRun*>> SeedsTogether(const std::vector<ComparedRun>& runs) {
  std::vector<std::vector<const ComparedRun*>> groups;
  std::map<std::string, size_t> places;
  for (const ComparedRun& run : runs) {
    const auto [place, added] = places.emplace(ComparedKindOf(run), groups.size());
    if (added) groups.emplace_back();
    groups[place->second].push_back(&run);
  }
  return groups;
}

// The curve of one run; of several the mean at each step that all have, and their range as a band.
io::Series CurveOf(const std::vector<const ComparedRun*>& runs, const std::string& metric) {
  const std::string& name = runs.front()->summary.name;
  if (runs.size() == 1) return {name, runs.front()->history.Column(metric)};
  std::map<double, std::vector<double>> values;
  for (const ComparedRun* run : runs) {
    for (const io::Point& point : run->history.Column(metric)) {
      if (std::isfinite(point.y)) values[point.x].push_back(point.y);
    }
  }
  io::Series series{absl::StrCat(name, ", mean of ", runs.size(), " runs"), {}};
  for (const auto& [step, all] : values) {
    if (all.size() < runs.size()) continue;
    const auto [low, high] = std::minmax_element(all.begin(), all.end());
    series.points.push_back({step, Mean(all)});
    series.low.push_back({step, *low});
    series.high.push_back({step, *high});
  }
  return series;
}

// "0.5 pickscore + ocr (paddle)": what decides the scale of its mean.
std::string RewardOf(const v1::RewardConfig& reward) {
  std::vector<std::string> terms;
  for (const v1::RewardTerm& term : reward.terms()) {
    const v1::ScorerConfig scorer = run::ScorerOf(reward, term.name());
    std::vector<std::string> kind;
    for (const std::string& word :
         {scorer.scorer(), scorer.variant(), scorer.engine(), scorer.llm(), scorer.question()}) {
      if (!word.empty()) kind.push_back(word);
    }
    terms.push_back(absl::StrCat(
        term.weight() == 1 ? "" : absl::StrCat(io::Number(term.weight()), " "), term.name(),
        kind.empty() ? "" : absl::StrCat(" (", absl::StrJoin(kind, ", "), ")")));
  }
  return absl::StrJoin(terms, " + ");
}

std::optional<v1::RunConfig> ConfigAt(const fs::path& run_dir) {
  auto config = config::LoadResolved(run_dir / "config.resolved.yaml");
  return config.ok() ? std::optional(*std::move(config)) : std::nullopt;
}

// `apart`: RewardsApart of these runs.
std::string Charts(const std::vector<ComparedRun>& runs, const std::string& apart) {
  const std::vector<std::vector<const ComparedRun*>> groups = SeedsTogether(runs);
  std::string out = "<h2>Curves</h2>";
  if (groups.size() < runs.size()) {
    out +=
        "<p class=\"lead\">Runs that differ in their seed alone are one line, their mean, with "
        "their range around it.</p>";
  }
  if (!apart.empty()) absl::StrAppend(&out, "<p class=\"lead\">", io::EscapeHtml(apart), "</p>");
  out += "<div class=\"charts\">\n";
  for (const Panel& panel : Panels()) {
    if (panel.of_reward && !apart.empty()) continue;
    std::vector<io::Series> series;  // Those without points, too: each has one colour everywhere.
    for (const std::vector<const ComparedRun*>& group : groups) {
      series.push_back(CurveOf(group, panel.metric));
    }
    if (std::none_of(series.begin(), series.end(), io::HasPoints)) continue;
    io::ChartSpec spec{.title = panel.title, .unit = panel.unit};
    if (panel.from_zero) spec.y_min = 0;
    absl::StrAppend(&out, "<figure class=\"chart\">", io::Chart(spec, series), "</figure>\n");
  }
  return out + "</div>\n";
}

std::string Overview(const std::vector<ComparedRun>& runs) {
  std::string out =
      "<div class=\"wide\"><table "
      "class=\"runs\"><tr><th>run</th><th>state</th><th>steps</th><th>reward</th>"
      "<th>held-out</th><th>best</th>";
  for (const io::VerdictLine& line : runs.front().summary.verdict) {
    absl::StrAppend(&out, "<th>", line.topic, "</th>");
  }
  out += "</tr>\n";
  for (const ComparedRun& run : runs) {
    const RunSummary& summary = run.summary;
    absl::StrAppend(&out, "<tr><td>", io::EscapeHtml(summary.name), "</td><td>",
                    io::EscapeHtml(summary.StateAndCause()), "</td><td>", summary.step, "</td><td>",
                    io::EscapeHtml(summary.reward_name), "</td><td>");
    if (summary.last) {
      absl::StrAppend(&out, io::Number(summary.first->y), " &rarr; <b>",
                      io::Number(summary.last->y), "</b></td><td>", io::Number(summary.best->y),
                      absl::StrFormat(" at step %.0f", summary.best->x));
    } else {
      out += "-</td><td>-";
    }
    out += "</td>";
    for (const io::VerdictLine& line : summary.verdict) {
      absl::StrAppend(&out, "<td title=\"", io::EscapeHtml(line.says), "\">",
                      io::LevelWord(line.level), "</td>");
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string Settings(const std::vector<ComparedRun>& runs,
                     const std::vector<Difference>& differences) {
  if (differences.empty()) return "<p class=\"lead\">The settings are the same.</p>\n";
  std::string out =
      "<h2>What the settings differ in</h2><div class=\"wide\"><table><tr><th>key</th>";
  for (const ComparedRun& run : runs)
    absl::StrAppend(&out, "<th>", io::EscapeHtml(run.summary.name), "</th>");
  out += "</tr>\n";
  for (const Difference& difference : differences) {
    absl::StrAppend(&out, "<tr><td>", difference.key, "</td>");
    for (const std::string& value : difference.values) {
      absl::StrAppend(&out, "<td>", io::EscapeHtml(value), "</td>");
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

// The last evaluation of each run that can be seen, or what keeps it from being seen.
std::string ComparedPictures(const std::vector<ComparedRun>& runs, const fs::path& page) {
  std::vector<io::RunPictures> pictures;
  for (const ComparedRun& run : runs) {
    if (run.sheets.empty()) continue;
    const auto seen = std::find_if(run.sheets.rbegin(), run.sheets.rend(),
                                   [](const io::Sheet& sheet) { return sheet.visible(); });
    const io::Sheet& last = seen == run.sheets.rend() ? run.sheets.back() : *seen;
    std::error_code none;
    const fs::path folder =
        fs::relative(last.file.parent_path(), fs::absolute(page).parent_path(), none);
    pictures.push_back({run.summary.name, last, folder.generic_string() + "/"});
  }
  return io::GalleryOfRuns(pictures, [&](const io::Sheet& sheet, io::SpriteSize size) {
    io::Sprite sprite = io::SpriteOf(sheet, size, kPicturesBytesMax / pictures.size());
    return io::SheetImage{sprite.bytes.empty() ? "" : io::DataUri(sprite),
                          std::move(sprite.trouble)};
  });
}

}  // namespace

std::vector<Difference> DifferencesOf(const std::vector<fs::path>& run_dirs) {
  std::vector<std::optional<v1::RunConfig>> configs;
  for (const fs::path& run_dir : run_dirs) {
    configs.push_back(ConfigAt(run_dir));
  }
  std::vector<Difference> differences;
  for (const std::string& key : config::LeafKeys(*v1::RunConfig::descriptor())) {
    if (key == "run.name" || key == "run.directory") continue;
    Difference difference{key, {}};
    for (const auto& config : configs) {
      difference.values.push_back(config ? TextOf(*config, key) : "");
    }
    const std::set<std::string> distinct(difference.values.begin(), difference.values.end());
    if (distinct.size() > 1) differences.push_back(std::move(difference));
  }
  return differences;
}

std::string RewardsApart(const std::vector<fs::path>& run_dirs) {
  std::vector<std::string> rewards;
  std::set<std::string> distinct;
  for (const fs::path& run_dir : run_dirs) {
    const auto config = ConfigAt(run_dir);
    if (!config) return "";
    const std::string reward = RewardOf(config->reward());
    distinct.insert(reward);
    rewards.push_back(absl::StrCat(io::RunName(run_dir), ": ", reward));
  }
  if (distinct.size() < 2) return "";
  return absl::StrCat("these runs are trained on different rewards, whose means are not compared (",
                      FirstPart(absl::StrJoin(rewards, "; "), kRewardsShown), ")");
}

std::string DifferencesText(const std::vector<fs::path>& run_dirs) {
  constexpr size_t kCellMax = 40;
  std::vector<std::vector<std::string>> rows = {{"setting"}};
  for (const fs::path& run_dir : run_dirs) rows[0].push_back(io::RunName(run_dir));
  if (std::set(rows[0].begin(), rows[0].end()).size() < rows[0].size()) {  // Two of one name.
    for (size_t i = 0; i < run_dirs.size(); ++i) rows[0][i + 1] = run_dirs[i].string();
  }
  for (const Difference& difference : DifferencesOf(run_dirs)) {
    rows.push_back({difference.key});
    for (const std::string& value : difference.values) {
      rows.back().push_back(
          value.size() <= kCellMax ? value : absl::StrCat(value.substr(0, kCellMax - 3), "..."));
    }
  }
  if (rows.size() == 1) return "the settings are the same\n";
  return TableText(rows);
}

absl::StatusOr<std::string> ComparisonPage(const std::vector<fs::path>& run_dirs,
                                           const fs::path& page) {
  std::vector<ComparedRun> runs;
  for (const fs::path& run_dir : run_dirs) {
    OXBOW_ASSIGN_OR_RETURN(RunSummary summary, SummaryOf(run_dir));
    OXBOW_ASSIGN_OR_RETURN(const auto lines, io::ReadMetrics(run_dir / io::kMetricsFile));
    runs.push_back(
        {std::move(summary), io::History(lines), io::SheetsOf(run_dir), ConfigAt(run_dir)});
  }
  return io::Page("oxbow: runs compared",
                  absl::StrCat("<h1>Runs compared</h1>", Overview(runs),
                               Settings(runs, DifferencesOf(run_dirs)),
                               Charts(runs, RewardsApart(run_dirs)), ComparedPictures(runs, page)));
}

void AddCompare(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<CompareFlags>();  // Lives as long as the callback below.
  CLI::App* const command =
      app.add_subcommand("compare", "Write a page that shows runs side by side");
  command->footer("Prints the settings that differ. Example: oxbow compare runs/a runs/b");
  command->add_option("RUN_DIR", flags->runs, "directories of runs")
      ->transform(RunNamed)
      ->required()
      ->expected(2, 8);
  command->add_option("--out", flags->out, "the page")->capture_default_str();
  command->callback([flags, &exit_code] { exit_code = Ended("compare", Compare(*flags)); });
}

}  // namespace oxbow::cli
