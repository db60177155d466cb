// SPDX-License-Identifier: Apache-2.0
#include "io/report/panels.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/reward/synthetic_task.h"
#include "io/report/html.h"
#include "io/report/svg_chart.h"
#include "io/report/verdict_course.h"
#include "metrics/phase_words.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {
namespace {

struct Curve {
  std::string label;
  std::string metric;
};

struct Panel {
  ChartSpec spec;
  std::vector<Curve> curves;
  std::string how_to_read;
  // Whether 0 at every step is worth a chart: it is news of an error, and none of a cost.
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

// The rewards by their own names, where there are several.
std::vector<Curve> EachReward(const History& history, const metric::StepMetricFamily& family) {
  std::vector<Curve> curves;
  for (const std::string& name : history.NamesWithPrefix(std::string(family.before))) {
    const auto reward = family.ValueIn(name);
    if (!reward || reward::SaysLayout(*reward) || name == metric::kTrainRewardGroupStdMean.name)
      continue;
    curves.push_back({std::string(*reward), name});
  }
  return curves;
}

// Panels that describe held-out pictures. A run has the first of these, or the next three.
std::vector<Panel> PicturePanels() {
  return {{{.title = "Speckle", .unit = "0 to 1, lower is cleaner", .y_min = 0},
           {{"speckle", metric::kEvalSpeckleMean}},
           "How grey the pixels of held-out pictures are, which should be black and "
           "white. A rise is dust that the reward does not see and people do."},
          {{.title = "Saturated pixels", .unit = "share", .y_min = 0},
           {{"share", metric::kEvalSaturatedShare}},
           "Pixels of held-out pictures that are burnt out, black or of the strongest "
           "colour. It rises where light, contrast or colour please the reward."},
          {{.title = "Fine detail", .unit = "energy of the highest frequencies", .y_min = 0},
           {{"fine detail", metric::kEvalFineDetail}},
           "Noise, grain and grids that please the reward raise it. A fall is a picture "
           "that becomes smooth."},
          {{.title = "Sharpness", .unit = "contrast over one pixel by that over four"},
           {{"sharpness", metric::kEvalSharpness}},
           "Blur lowers it; sharpened edges raise it. It does not depend on contrast."},
          {{.title = "Distance from the base model's pictures",
            .unit = "1 is that of two prompts",
            .y_min = 0},
           {{"distance", metric::kEvalBaseDistance}},
           "How far held-out pictures are from those of step 0, which had the same noise. "
           "Near 1 nothing of them is left."},
          {{.title = "Layouts", .unit = "share of the rarer one", .y_min = 0, .y_max = 0.5},
           {{"rarer layout", metric::kEvalMinorityShare}},
           "Two layouts are equally right; at 0.5 both are drawn equally often. A fall "
           "towards 0 is mode collapse, which the reward does not show."}};
}

// The width in which an evaluation's mean of the reward may move by chance: up and down by the
// errors that a change must exceed.
double ChanceOf(const History& history, const RunFacts& facts) {
  const auto reward = history.First(
      history.FirstPresent({metric::kEvalRewardMean.name, metric::kTrainRewardMean.name}));
  return reward ? 2 * kErrors * NoiseOf(history, facts, reward->y) : 0;
}

std::vector<Panel> LearningPanels(const History& history, const RunFacts& facts) {
  const std::vector<Curve> each = EachReward(history, metric::kEvalRewardNameMean);
  std::vector<Curve> held_out = {{facts.reward_name, metric::kEvalRewardMean}};
  const bool bounded = facts.full_reward.has_value();
  if (bounded) held_out.insert(held_out.end(), each.begin(), each.end());
  std::erase_if(held_out, [&](const Curve& curve) {  // A single term twice.
    return curve.metric != metric::kEvalRewardMean.name && curve.label == facts.reward_name;
  });
  const auto low = bounded ? facts.reward_min : std::nullopt;
  const auto high = facts.full_reward;
  const double chance = ChanceOf(history, facts);
  std::vector<Panel> panels = {
      {{.title = "Held-out reward",
        .unit = bounded ? absl::StrCat(Number(*facts.full_reward), " is full") : "",
        .y_min = low,
        .y_max = high,
        .range_min = chance},
       held_out,
       "What counts: prompts that are never trained on, sampled without noise."},
      {{.title = "Training reward",
        .unit = "mean of a step",
        .y_min = low,
        .y_max = high,
        .range_min = chance},
       {{"reward", metric::kTrainRewardMean}, {"chosen groups", metric::kTrainChosenRewardMean}},
       "Noisier and often lower than the held-out one, because samples explore. Chosen groups are "
       "those with a replayed start and those on prompts that were hard."}};
  if (!bounded && each.size() > 1) {
    panels.push_back({{.title = "Each reward, held out", .range_min = chance},
                      each,
                      "One that falls while the sum rises is paid for by the others."});
  }
  if (const auto by = EachReward(history, metric::kEvalByValueMean); by.size() > 1) {
    panels.push_back({{.title = "Held-out reward by difficulty",
                       .y_min = low,
                       .y_max = high,
                       .range_min = chance},
                      by,
                      "The held-out prompts by what their metadata say (eval.by). A mean hides "
                      "hard prompts that are never solved."});
  }
  panels.push_back({{.title = "Groups without a signal", .unit = "share", .y_min = 0, .y_max = 1},
                    {{"all rewards equal", metric::kTrainRewardZeroStdRatio},
                     {"fresh groups, running mean", metric::kBufferNeed}},
                    "A group whose pictures all score alike teaches nothing. Near 1 there is "
                    "nothing left to learn from, or nothing to begin with."});
  for (Panel& panel : PicturePanels()) panels.push_back(std::move(panel));
  panels.push_back({{.title = "Variety within a group", .unit = "1 is black to white", .y_min = 0},
                    {{"difference of pictures", metric::kTrainGroupDistanceMean},
                     {"share of near duplicates", metric::kTrainDuplicateShareMean}},
                    "How far pictures of one prompt differ. It falls while wrong pictures leave; "
                    "towards 0 all pictures of a prompt become one."});
  return panels;
}

std::vector<Panel> UpdatePanels(const History& history, const RunFacts& facts) {
  const double chance = ChanceOf(history, facts);
  return {
      {{.title = "Gradient norm", .unit = "before clipping", .y_min = 0},
       {{"norm", metric::kTrainGradNorm}},
       "A steady level is healthy. A rise to many times its usual value comes before a collapse."},
      {{.title = "Movement of the weights", .unit = "distance in a step", .y_min = 0},
       {{"distance", metric::kTrainUpdateNorm}},
       "How far a step moves the trained weights. It follows the learning rate."},
      {{.title = "Distance from the base model", .unit = "of the weights", .y_min = 0},
       {{"distance", metric::kTrainBaseDistance}},
       "How far training has moved the weights in all. It levels off as training settles; it goes "
       "on rising, with a reward that stands still, where weights only drift."},
      {{.title = "Learning rate", .y_min = 0, .scientific = true},
       {{"rate", metric::kTrainLr}},
       "Warm-up and decay as configured."},
      {{.title = "Clip fraction", .unit = "share of ratios clipped", .y_min = 0},
       {{"all", metric::kTrainClipFracTotal},
        {"fresh", metric::kTrainClipFracFresh},
        {"stale", metric::kTrainClipFracStale},
        {"replayed", metric::kTrainClipFracReplay}},
       "Low on fresh samples and higher on replayed ones is normal. A steady climb means that the "
       "steps are too large for the clip range.",
       true},
      {{.title = "Weight of off-policy samples", .y_min = 0},
       {{"mean", metric::kTrainIwMean}, {"smallest", metric::kTrainIwMin}},
       "The correction for samples of older weights; 1 means that none is needed."},
      {{.title = "Effective off-policy samples", .unit = "samples", .y_min = 0},
       {{"effective", metric::kTrainIwEss}},
       "How many of the weighted samples still count."},
      {{.title = "On-policy ratio error", .unit = "|ratio - 1|", .scientific = true},
       {{"largest", metric::kTrainOnpolicyRatioErr}, {"allowed", metric::kTrainOnpolicyRatioLimit}},
       "Before the first update of fresh data the ratio must be 1, so 0 is right on CPUs. More "
       "than allowed: worker and learner disagree about the same step.",
       true},
      {{.title = "Divergence from the base model", .unit = "per element", .y_min = 0},
       {{"KL", metric::kTrainKlDiv},
        {"from the old policy", metric::kTrainOldKlDiv},
        {"from the policy before the step", metric::kTrainKlPrecedentDiv}},
       "How far the policy is from where it started. A sudden jump often comes just before a "
       "collapse."},
      {{.title = "Anchor", .unit = "squared difference of velocities", .y_min = 0},
       {{"to the base model", metric::kTrainAnchorDiv}},
       "How far the model has moved at the noise levels that the anchor holds."},
      {{.title = "Age of fresh samples", .unit = "learner steps", .y_min = 0},
       {{"mean", metric::kRolloutStalenessMean}, {"largest", metric::kRolloutStalenessMax}},
       "Steps between the weights that made a sample and the update that used it; never more than "
       "off_policy.staleness_max."},
      {{.title = "Age of replayed heads", .unit = "learner steps", .y_min = 0},
       {{"mean", metric::kBufferStalenessMean}, {"95th percentile", metric::kBufferStalenessP95}},
       "How long replayed starts had been in the buffer."},
      {{.title = "Replay buffer", .unit = "entries", .y_min = 0},
       {{"entries", metric::kBufferSize}},
       "The best trajectory of each prompt so far, one per prompt at most, until its capacity."},
      {{.title = "Reward in the replay buffer", .unit = "mean", .range_min = chance},
       {{"stored", metric::kBufferRawRewardMean}, {"decayed", metric::kBufferPriorityMean}},
       "What is kept is worth keeping while this is above the training reward."},
      {{.title = "Replayed again", .unit = "change of reward", .range_min = chance},
       {{"new picture - stored one", metric::kTrainReplayRewardChange}},
       "Near 0 a replayed start still leads to a picture as good as the stored one."},
      {{.title = "Chosen groups", .unit = "groups", .y_min = 0},
       {{"trained", metric::kAdaptationGroupsTrained},
        {"reused", metric::kAdaptationGroupsReused},
        {"hard ones again", metric::kAdaptationHardAgain}},
       "What batch adaptation trains on in each step."}};
}

static_assert(std::size(metric::kPhaseWords) <= kColours, "two phases would have one colour");

std::vector<Panel> TimePanels(const History& history) {
  Panel parts{{.title = "Step time", .unit = "seconds of a step", .stacked = true},
              {},
              "Where the learner's time goes, on average over the steps of each bar. Much waiting "
              "for rollouts means that more workers would help."};
  for (const metric::PhaseWords& words : metric::kPhaseWords) {
    const std::string name = metric::kTimePhaseS.Of(words.phase);
    if (history.First(name)) parts.curves.push_back({std::string(words.doing), name});
  }
  return {parts,
          {{.title = "Throughput", .unit = "images per second", .y_min = 0},
           {{"images/s", metric::kThroughputSamplesPerS}},
           "Images sampled, scored and trained on, over the time of the step."},
          {{.title = "Workers", .unit = "that drew a group of the step", .y_min = 0},
           {{"workers", metric::kRolloutWorkers}},
           "They may join and leave at any time."},
          {{.title = "Lost work", .unit = "groups since the start", .y_min = 0},
           {{"leases expired", metric::kRolloutLeasesExpired},
            {"results discarded", metric::kRolloutGroupsDiscarded}},
           "Groups that were given out and did not come back in time, or came twice."}};
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
  add("learning", "Does it learn, without cheating?", LearningPanels(history, facts));
  add("update", "Is the update healthy?", UpdatePanels(history, facts));
  add("time", "Where does the time go?", TimePanels(history));
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
