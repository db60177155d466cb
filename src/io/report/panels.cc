// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/reward/synthetic_task.h"
#include "core/rl/prompt_progress.h"
#include "io/report/html.h"
#include "io/report/report.h"
#include "io/report/svg_chart.h"
#include "io/report/verdict_course.h"
#include "metrics/phase_words.h"
#include "metrics/step_panels.h"

namespace oxbow::io {
namespace {

struct Curve {
  std::string label;
  std::string metric;
};

struct Panel {
  ChartSpec spec;
  std::vector<Curve> curves;
  const char* how_to_read;
  bool zero_is_news = false;
};

// The step of all points of all series, where it is the same one.
std::optional<double> OnlyStep(const std::vector<Series>& series) {
  std::optional<double> only;
  for (const Series& one : series) {
    for (const Point& point : one.points) {
      if (std::isfinite(point.y) && only.value_or(point.x) != point.x) return std::nullopt;
      if (std::isfinite(point.y)) only = point.x;
    }
  }
  return only;
}

// In place of a chart of one step: "largest 2.1e-05, allowed 5e-05, measured at step 1 alone so
// far".
std::string PlainNumbers(const ChartSpec& spec, const std::vector<Series>& series, double step) {
  std::vector<std::string> numbers;
  for (const Series& one : series) {
    for (const Point& point : one.points) {
      if (!std::isfinite(point.y)) continue;
      numbers.push_back(
          absl::StrCat(EscapeHtml(one.name), " <b>", Number(point.y, spec.scientific), "</b>"));
    }
  }
  return absl::StrCat("<h3>", EscapeHtml(spec.title), " <small>", EscapeHtml(spec.unit),
                      "</small></h3><p class=\"one\">", absl::StrJoin(numbers, ", "),
                      ", measured at step ", StepText(step), " alone so far</p>");
}

bool AllZero(const std::vector<Point>& points) {
  return std::all_of(points.begin(), points.end(),
                     [](const Point& point) { return point.y == 0 || !std::isfinite(point.y); });
}

// Steps of which each chart shows something.
struct Marks {
  std::vector<double> evaluations, changes;
};

std::string Draw(const History& history, const Panel& panel, const Marks& marks) {
  std::vector<Series> series;
  bool zero = true;
  for (const Curve& curve : panel.curves) {
    Series one{curve.label, history.Column(curve.metric)};
    if (!HasPoints(one)) continue;
    zero = zero && AllZero(one.points);
    series.push_back(std::move(one));
  }
  if (series.empty() || (zero && !panel.zero_is_news)) return "";
  ChartSpec spec = panel.spec;
  spec.marks = marks.evaluations;
  spec.changes = marks.changes;
  const std::optional<double> only = OnlyStep(series);
  return absl::StrCat("<figure class=\"chart\">",
                      only ? PlainNumbers(spec, series, *only) : Chart(spec, series),
                      "<p class=\"how\">", panel.how_to_read, "</p></figure>\n");
}

std::string Section(const History& history, std::string_view heading,
                    const std::vector<Panel>& panels, const Marks& marks) {
  std::string charts;
  for (const Panel& panel : panels) charts += Draw(history, panel, marks);
  if (charts.empty()) return "";
  return absl::StrCat("<h2>", std::string(heading), "</h2><div class=\"charts\">\n", charts,
                      "</div>\n");
}

// The numbers of a family; nothing for a single one, which says what the mean says.
std::vector<Curve> CurvesOf(const History& history, const metric::StepMetricFamily& family) {
  std::vector<Curve> curves;
  for (const std::string& name : history.NamesWithPrefix(std::string(family.before))) {
    const auto value = family.ValueIn(name);
    if (!value || reward::SaysLayout(*value) || name == metric::kTrainRewardGroupStdMean.name)
      continue;
    curves.push_back({std::string(*value), name});
  }
  return curves.size() > 1 ? curves : std::vector<Curve>();
}

// The width in which an evaluation's mean of the reward may move by chance: up and down by the
// errors that a change must exceed.
double ChanceOf(const History& history, const RunFacts& facts) {
  const auto reward = history.First(
      history.FirstPresent({metric::kEvalRewardMean.name, metric::kTrainRewardMean.name}));
  return reward ? 2 * kErrors * NoiseOf(history, facts, reward->y) : 0;
}

ChartSpec SpecOf(const metric::StepPanel& row, const RunFacts& facts, double chance) {
  ChartSpec spec{.title = row.title, .unit = row.unit};
  switch (row.scale) {
    case metric::StepScale::kFree:
      break;
    case metric::StepScale::kShare:
      spec.y_max = 1;
      [[fallthrough]];
    case metric::StepScale::kFromZero:
      spec.y_min = 0;
      break;
    case metric::StepScale::kSmall:
      spec.y_min = 0;
      spec.scientific = true;
      break;
    case metric::StepScale::kReward:
      spec.y_max = facts.full_reward;
      if (facts.full_reward.has_value()) {
        spec.y_min = facts.reward_min;
        if (spec.unit.empty()) spec.unit = absl::StrCat(Number(*facts.full_reward), " is full");
      }
      [[fallthrough]];
    case metric::StepScale::kRewardChange:
      spec.range_min = chance;
      break;
  }
  return spec;
}

std::vector<Panel> PanelsOf(std::span<const metric::StepPanel> rows, const History& history,
                            const RunFacts& facts) {
  const double chance = ChanceOf(history, facts);
  std::vector<Panel> panels;
  for (const metric::StepPanel& row : rows) {
    Panel panel{SpecOf(row, facts, chance),
                {},
                row.how_to_read,
                row.chart == metric::StepChart::kZeroIsNews};
    for (const metric::StepCurve& curve : row.curves) {
      if (curve.each != nullptr) panel.curves = CurvesOf(history, *curve.each);
      if (curve.number == nullptr) break;
      const bool held_out = curve.number == &metric::kEvalRewardMean;
      panel.curves.push_back({held_out ? facts.reward_name : curve.label, *curve.number});
    }
    panels.push_back(std::move(panel));
  }
  return panels;
}

static_assert(std::size(metric::kPhaseWords) <= kColours, "two phases would have one colour");

Panel PhasesPanel(const History& history) {
  Panel phases{{.title = "Step time", .unit = "seconds of a step", .stacked = true},
               {},
               "Where the learner's time goes, on average over the steps of each bar. Much waiting "
               "for rollouts means that more workers would help."};
  for (const metric::PhaseWords& words : metric::kPhaseWords) {
    const std::string name = metric::kTimePhaseS.Of(words.phase);
    if (history.First(name)) phases.curves.push_back({std::string(words.doing), name});
  }
  return phases;
}

// A row of a table, its first cell a heading.
std::string TableRow(const std::vector<std::string>& cells, const char* cell) {
  return absl::StrCat(
      "<tr><th>", cells.front(), "</th><", cell, ">",
      absl::StrJoin(cells.begin() + 1, cells.end(), absl::StrCat("</", cell, "><", cell, ">")),
      "</", cell, "></tr>\n");
}

// Training prompts by the level of their first group (rows) and of their latest one; empty where
// the last step's counts are not those of all prompts.
std::string MigrationTable(const History& history) {
  const auto seen = history.Last(metric::kPromptsSeen);
  if (!seen) return "";
  const std::vector<std::string> levels = {"0", "to 1/4", "to 1/2", "to 3/4", "below 1", "1"};
  static_assert(rl::kPromptLevels == 6);
  std::vector<std::string> head = {"first group"};
  head.insert(head.end(), levels.begin(), levels.end());
  std::string rows = TableRow(head, "th");
  double sum = 0;
  for (size_t first = 0; first < levels.size(); ++first) {
    std::vector<std::string> cells = {levels[first]};
    for (size_t latest = 0; latest < levels.size(); ++latest) {
      const auto count = history.Last(metric::kPromptsMovedAB.Of(absl::StrCat(first, "_", latest)));
      const double now = count && count->x == seen->x ? count->y : 0;
      sum += now;
      cells.push_back(now > 0 ? absl::StrCat(now) : "");
    }
    rows += TableRow(cells, "td");
  }
  if (sum != seen->y || sum == 0) return "";
  return absl::StrCat(
      "<h2>How far have prompts come?</h2>\n<p class=\"how\">The ", sum,
      " training prompts by the mean share of the full reward in their first group (rows) and in "
      "their latest one (columns). Right of the diagonal they got better.</p>\n"
      "<div class=\"wide\"><table>",
      rows, "</table></div>\n");
}

}  // namespace

std::vector<PageSection> PanelSections(const History& history, const RunFacts& facts) {
  Marks marks;
  for (const Point& point : history.Column(metric::kEvalRewardMean)) {
    marks.evaluations.push_back(point.x);
  }
  for (const auto& [step, what] : facts.changes) marks.changes.push_back(static_cast<double>(step));
  std::vector<PageSection> sections;
  const auto add = [&](const char* id, const char* heading, const std::vector<Panel>& panels) {
    std::string html = Section(history, heading, panels, marks);
    if (!html.empty()) sections.push_back({id, std::move(html)});
  };
  add("learning", "Does it learn, without cheating?",
      PanelsOf(metric::kLearningPanels, history, facts));
  if (std::string table = MigrationTable(history); !table.empty()) {
    sections.push_back({"prompts", std::move(table)});
  }
  add("update", "Is the update healthy?", PanelsOf(metric::kUpdatePanels, history, facts));
  std::vector<Panel> time = PanelsOf(metric::kTimePanels, history, facts);
  time.insert(time.begin(), PhasesPanel(history));
  add("time", "Where does the time go?", time);
  if (facts.left_out.empty() || sections.empty()) return sections;
  std::vector<std::string> reasons;
  for (const auto& [what, why] : facts.left_out)
    reasons.push_back(absl::StrCat(what, " (", why, ")"));
  sections.push_back(
      {"left_out", absl::StrCat("<p class=\"lead\">Not part of this run: ",
                                EscapeHtml(absl::StrJoin(reasons, ", ")), ".</p>\n")});
  return sections;
}

}  // namespace oxbow::io
