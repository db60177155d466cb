// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/learning_table.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/statistics.h"
#include "cli/learning/equal_layouts.h"
#include "cli/learning/grid_table.h"
#include "cli/learning/mean_text.h"
#include "cli/learning/paired_table.h"
#include "io/report/html.h"
#include "io/report/svg_chart.h"
#include "io/report/svg_picture.h"

namespace oxbow::cli {
namespace {

using Cost = double io::CurvePoint::*;

// The cost of reaching the level, for each run of a recipe.
struct Costs {
  std::vector<double> values;
  size_t reached = 0;
};

Costs CostsOf(const RecipeCurves& recipe, double level, Cost cost) {
  Costs costs;
  for (const io::LearningCurve& curve : recipe.curves) {
    if (curve.points.empty()) continue;
    const std::optional<io::CurvePoint> reached = io::Reached(curve, level);
    costs.reached += reached ? 1 : 0;
    costs.values.push_back((reached ? *reached : curve.points.back()).*cost);
  }
  return costs;
}

// Baseline runs count to their end: their final reward is the level, which half of them reach
// earlier only by chance. `fixed`: the level was given, 0 if it is the baseline's own.
std::string RatioText(const RecipeCurves& recipe, const RecipeCurves& baseline, double fixed,
                      bool all, Cost cost) {
  const auto interval = CostRatio(recipe, baseline, fixed, cost, /*to_whole_runs=*/true);
  if (!interval.has_value()) return "-";
  return absl::StrFormat("%s%.3f (%.3f to %.3f)", all ? "" : ">= ", interval->ratio, interval->low,
                         interval->high);
}

std::string MeanText(const std::vector<io::LearningCurve>& curves,
                     double io::LearningCurve::*value) {
  std::vector<double> values;
  for (const io::LearningCurve& curve : curves) {
    if (std::isfinite(curve.*value)) values.push_back(curve.*value);
  }
  return cli::MeanText(values);
}

std::string Trimmed(std::string text) {
  absl::StripAsciiWhitespace(&text);
  return text;
}

// A row of a table of Markdown; nothing for the line below its head.
std::string HtmlRow(const std::string& line, const char* cell) {
  if (absl::StartsWith(line, "|---")) return "";
  std::string out = "<tr>";
  const std::vector<std::string> cells = absl::StrSplit(line, '|');
  for (size_t i = 1; i + 1 < cells.size(); ++i) {
    absl::StrAppend(&out, "<", cell, ">", io::EscapeHtml(Trimmed(cells[i])), "</", cell, ">");
  }
  return out + "</tr>\n";
}

const RecipeCurves& BaselineOf(const Comparison& comparison) {
  for (const RecipeCurves& recipe : comparison.recipes) {
    if (recipe.name == comparison.baseline) return recipe;
  }
  OXBOW_CHECK(false) << "no recipe is the baseline " << comparison.baseline;
  return comparison.recipes.front();
}

std::string Row(const RecipeCurves& recipe, const RecipeCurves& baseline, double level,
                double fixed) {
  const Costs steps = CostsOf(recipe, level, &io::CurvePoint::step);
  const bool all = steps.reached == steps.values.size();
  const auto collapsed =
      std::count_if(recipe.curves.begin(), recipe.curves.end(),
                    [](const io::LearningCurve& curve) { return io::Collapsed(curve); });
  std::string row = absl::StrFormat("| %s | %d/%d | %s%.1f |", recipe.name, steps.reached,
                                    recipe.curves.size(), all ? "" : ">= ", Mean(steps.values));
  for (const Cost cost : {&io::CurvePoint::step, &io::CurvePoint::seconds, &io::CurvePoint::nfe3,
                          &io::CurvePoint::images}) {
    absl::StrAppend(&row, " ", RatioText(recipe, baseline, fixed, all, cost), " |");
  }
  absl::StrAppend(&row, " ", MeanText(recipe.curves, &io::LearningCurve::final_reward), " | ",
                  MeanText(recipe.curves, &io::LearningCurve::final_strict), " | ",
                  MeanText(recipe.curves, &io::LearningCurve::final_speckle), " | ",
                  MeanText(recipe.curves, &io::LearningCurve::final_minority), " | ", collapsed,
                  " | ", recipe.note, " |\n");
  return row;
}

constexpr char kWhatIsDrawn[] = "held-out reward by step, mean and two standard errors over seeds";
constexpr int kPictureColumns = 2;

io::Series MeanCurve(const std::string& name, const RecipeCurves& recipe) {
  std::map<double, std::vector<double>> by_step;
  for (const io::LearningCurve& curve : recipe.curves) {
    for (const io::CurvePoint& point : curve.points) by_step[point.step].push_back(point.reward);
  }
  io::Series line{.name = name, .points = {}};
  for (const auto& [step, rewards] : by_step) {
    const double mean = Mean(rewards);
    const double error = StandardError(rewards);
    // Not beyond what any seed had: a reward of 0 to 1 has no band below 0.
    const auto [least, greatest] = std::minmax_element(rewards.begin(), rewards.end());
    line.points.push_back({step, mean});
    line.low.push_back({step, std::max(mean - 2 * error, *least)});
    line.high.push_back({step, std::min(mean + 2 * error, *greatest)});
  }
  return line;
}

}  // namespace

std::optional<double> LevelOf(const Comparison& comparison) {
  if (comparison.level > 0) return comparison.level;
  std::vector<double> rewards;
  for (const io::LearningCurve& curve : BaselineOf(comparison).curves) {
    if (std::isfinite(curve.final_reward)) rewards.push_back(curve.final_reward);
  }
  if (rewards.empty()) return std::nullopt;
  return Mean(rewards);
}

std::string LearningTable(const Comparison& comparison) {
  const std::optional<double> level = LevelOf(comparison);
  if (!level) return "No run of the baseline is finished.\n";
  const RecipeCurves& baseline = BaselineOf(comparison);
  std::string table = absl::StrFormat(
      "Level: held-out reward %.3f, mean of three evaluations in a row. Ratios are to whole runs "
      "of %s, with 95 %% bootstrap intervals over seeds%s; `>=`: some run never reached the level "
      "and counts with all it took.\n\n",
      *level, baseline.name,
      comparison.level > 0 ? "" : ", the level's own uncertainty among them");
  absl::StrAppend(&table,
                  "| recipe | reached | steps | steps ratio | time ratio | NFE3 ratio | images "
                  "ratio | final reward | strict | speckle | rarer layout | collapsed | |\n"
                  "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const RecipeCurves& recipe : comparison.recipes) {
    if (recipe.curves.empty()) continue;
    absl::StrAppend(&table, Row(recipe, baseline, *level, comparison.level));
  }
  absl::StrAppend(&table, GridTables(comparison), PairedTables(comparison),
                  EqualLayoutTables(comparison), DifficultyTable(comparison));
  return table;
}

std::string LearningPlot(const Comparison& comparison) {
  std::vector<io::Series> series;
  for (const RecipeCurves& recipe : comparison.recipes) {
    if (!recipe.curves.empty()) series.push_back(MeanCurve(recipe.name, recipe));
  }
  if (series.empty()) return "";
  return io::Chart({.title = comparison.name + ": " + kWhatIsDrawn, .unit = "reward"}, series);
}

std::string LearningPicture(const Comparison& comparison) {
  const bool grids = std::any_of(comparison.recipes.begin(), comparison.recipes.end(),
                                 [](const RecipeCurves& recipe) { return !recipe.grid.empty(); });
  std::vector<io::PictureChart> charts;
  for (const RecipeCurves& recipe : comparison.recipes) {
    if (recipe.curves.empty() || (grids && recipe.grid.empty())) continue;
    auto chart = std::find_if(charts.begin(), charts.end(), [&](const io::PictureChart& one) {
      return one.spec.title == recipe.point;
    });
    if (chart == charts.end()) {
      const io::ChartSpec spec = {.title = recipe.point, .unit = "reward", .y_min = 0, .y_max = 1};
      chart = charts.insert(charts.end(), {.spec = spec, .series = {}});
    }
    chart->series.push_back(MeanCurve(grids ? recipe.grid : recipe.name, recipe));
  }
  if (charts.empty()) return "";
  return io::SvgPicture(comparison.name + ": " + kWhatIsDrawn, charts, kPictureColumns);
}

std::string LearningPage(const Comparison& comparison, const std::string& table) {
  std::string out = absl::StrCat("<h1>", io::EscapeHtml(comparison.name), "</h1>\n");
  bool open = false, head = false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(table, '\n'))) {
    const bool row = absl::StartsWith(line, "|");
    if (open && !row) out += "</table></div>\n";
    if (row && !open) out += "<div class=\"wide\"><table>\n";
    head = row && !open;
    open = row;
    if (row) {
      out += HtmlRow(line, head ? "th" : "td");
    } else if (!line.empty()) {
      absl::StrAppend(&out, "<p class=\"lead\">", io::EscapeHtml(line), "</p>\n");
    }
  }
  if (open) out += "</table></div>\n";
  const std::string plot = LearningPlot(comparison);
  return plot.empty() ? out : absl::StrCat(out, "<figure class=\"chart\">", plot, "</figure>\n");
}

}  // namespace oxbow::cli
