#include "io/report/report.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "io/metrics_file.h"
#include "io/report/html.h"
#include "io/report/svg_chart.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {
namespace {

constexpr uint64_t kImageBytesMax = 32 << 20;
constexpr uint64_t kConfigBytesMax = 1 << 20;

// A strict reward has its short name where it is observed, and its own where it is trained on; the
// first that exists is shown.
const std::vector<std::string> kStrict{metric::kEvalShortMean.Of("strict"),
                                       metric::kEvalRewardNameMean.Of("digits_strict")};

struct Wanted {
  std::string label;
  std::vector<std::string> names;
};

std::string Figure(const History& history, const ChartSpec& spec, const std::vector<Wanted>& wanted,
                   std::string_view how_to_read) {
  std::vector<Series> series;
  for (const Wanted& one : wanted) {
    series.push_back({one.label, history.Column(history.FirstPresent(one.names))});
  }
  return absl::StrCat("<figure>", Chart(spec, series), "<p class=\"how\">",
                      std::string(how_to_read), "</p></figure>\n");
}

std::string Card(std::string_view value, std::string_view label) {
  return absl::StrCat("<div class=\"card\"><b>", std::string(value), "</b><span>",
                      std::string(label), "</span></div>\n");
}

// "0.52 → 0.97"; empty if it was never measured.
std::string BeforeAfter(const History& history, const std::string& name) {
  const auto first = history.First(name), last = history.Last(name);
  if (!first) return "";
  if (last->x == first->x) return Number(last->y);
  return absl::StrCat("<em>", Number(first->y), " &rarr;</em> ", Number(last->y));
}

std::string Duration(double seconds) {
  if (seconds < 120) return absl::StrFormat("%.1f s", seconds);
  if (seconds < 7200) return absl::StrFormat("%.1f min", seconds / 60);
  return absl::StrFormat("%.1f h", seconds / 3600);
}

// Mean wall time between the first and last step, so that start-up is not counted.
std::optional<double> SecondsPerStep(const History& history) {
  const auto first = history.First(metric::kTimeWallS), last = history.Last(metric::kTimeWallS);
  if (!first || last->x <= first->x) return std::nullopt;
  return (last->y - first->y) / (last->x - first->x);
}

std::optional<double> MeanOf(const std::vector<Point>& points) {
  double sum = 0;
  int count = 0;
  for (const Point& point : points) {
    if (!(point.y >= 0)) continue;
    sum += point.y;
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional<double>(sum / count);
}

std::string Headline(const History& history) {
  std::string out = "<div class=\"cards\">\n";
  const auto add_change = [&](const std::string& name, const char* label) {
    if (const std::string change = BeforeAfter(history, name); !change.empty()) {
      out += Card(change, label);
    }
  };
  add_change(metric::kEvalRewardMean, "held-out reward");
  add_change(history.FirstPresent(kStrict), "all digits right (strict)");
  add_change(metric::kEvalSpeckleMean, "speckle, lower is cleaner");
  out += Card(absl::StrFormat("%.0f", history.last_step()), "learner steps");
  if (const auto wall = history.Last(metric::kTimeWallS)) {
    out += Card(Duration(wall->y), "wall time");
  }
  if (const auto per_step = SecondsPerStep(history)) {
    out += Card(absl::StrFormat("%.3g s", *per_step), "per step");
  }
  if (const auto rate = MeanOf(history.Column(metric::kThroughputSamplesPerS))) {
    out += Card(absl::StrFormat("%.0f", *rate), "images per second");
  }
  return out + "</div>\n";
}

// The steps that have an eval sheet, ascending.
std::vector<std::filesystem::path> SheetDirectories(const std::filesystem::path& run_dir) {
  std::vector<std::filesystem::path> directories;
  std::error_code error;
  std::filesystem::directory_iterator entries(run_dir / "samples", error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    std::error_code ignored;
    if (!entries->path().filename().string().starts_with("step_")) continue;
    if (std::filesystem::exists(entries->path() / "eval.png", ignored)) {
      directories.push_back(entries->path());
    }
  }
  std::sort(directories.begin(), directories.end(), [](const auto& a, const auto& b) {
    const std::string left = a.filename().string(), right = b.filename().string();
    return left.size() != right.size() ? left.size() < right.size() : left < right;
  });
  return directories;
}

std::string SheetFigure(const std::filesystem::path& directory, std::string_view heading) {
  const auto png = ReadFile(directory / "eval.png", kImageBytesMax);
  if (!png.ok()) return "";
  const auto caption = ReadFile(directory / "eval.txt", kConfigBytesMax);
  const std::string step = directory.filename().string().substr(5);
  const size_t digits = std::min(step.find_first_not_of('0'), step.size() - 1);
  const std::string title = absl::StrCat(std::string(heading), ": step ", step.substr(digits));
  return absl::StrCat("<figure><h3>", EscapeHtml(title), "</h3>", InlinePng(*png, title),
                      "<figcaption>", caption.ok() ? EscapeHtml(*caption) : "",
                      "</figcaption></figure>\n");
}

std::string Images(const std::filesystem::path& run_dir) {
  std::string out =
      "<h2>Before and after</h2><p class=\"lead\">The same held-out prompts, never trained on. "
      "Green frame: the image shows what was asked; red: it does not.</p>\n<div class=\"pair\">";
  const auto directories = SheetDirectories(run_dir);
  if (directories.empty()) return out + "<p class=\"none\">No sheets yet.</p></div>\n";
  out += SheetFigure(directories.front(), "Before");
  if (directories.size() > 1) out += SheetFigure(directories.back(), "After");
  return out + "</div>\n";
}

std::string LearningCharts(const History& history) {
  std::string out = "<h2>Is it learning, and honestly?</h2><div class=\"charts\">\n";
  out +=
      Figure(history, {.title = "Held-out quality", .unit = "1 is perfect", .y_min = 0, .y_max = 1},
             {{"reward", {metric::kEvalRewardMean}}, {"strict", kStrict}},
             "What counts. Sampled without noise on prompts never trained on; strict is the share "
             "of images that are right in full.");
  out +=
      Figure(history, {.title = "Training reward", .unit = "batch mean", .y_min = 0, .y_max = 1},
             {{"reward", {metric::kTrainRewardMean}},
              {"groups without signal", {metric::kTrainRewardZeroStdRatio}}},
             "Noisier and often lower than held-out, as samples explore. A group whose images all "
             "score alike teaches nothing; near 1 there is nothing left to learn from.");
  out += Figure(history, {.title = "Speckle", .unit = "mean(1 - |x|)", .y_min = 0},
                {{"speckle", {metric::kEvalSpeckleMean}}},
                "Grey dust that the scorer tolerates and a person does not. Reward up with speckle "
                "up is reward hacking; under 0.06 looks clean.");
  out += Figure(history,
                {.title = "Diversity", .unit = "minority-row share", .y_min = 0, .y_max = 0.5},
                {{"share of the rarer row", {metric::kEvalMinorityShare}}},
                "Two layouts are equally right; 0.5 means both are drawn equally often. A fall "
                "towards 0 is diversity collapse, which the reward does not show.");
  return out + "</div>\n";
}

std::string OffPolicyCharts(const History& history) {
  std::string out = "<h2>Is the update healthy?</h2><div class=\"charts\">\n";
  out +=
      Figure(history, {.title = "Clip fraction", .unit = "share of ratios clipped", .y_min = 0},
             {{"total", {metric::kTrainClipFracTotal}},
              {"fresh", {metric::kTrainClipFracFresh}},
              {"stale", {metric::kTrainClipFracStale}},
              {"replay", {metric::kTrainClipFracReplay}}},
             "Low on fresh samples and somewhat higher on replayed ones is normal. A steady climb "
             "means that the steps are too large for the clip range.");
  out += Figure(
      history, {.title = "Sequence weight", .unit = "of off-policy samples", .y_min = 0},
      {{"mean", {metric::kTrainIwMean}},
       {"minimum", {metric::kTrainIwMin}},
       {"effective samples", {metric::kTrainIwEss}}},
      "The correction for samples of older weights; 1 means none is needed. Effective samples "
      "(ESS) says how many of the replayed ones still count.");
  out +=
      Figure(history, {.title = "On-policy ratio error", .unit = "|ratio - 1|", .scientific = true},
             {{"largest |ratio - 1|", {metric::kTrainOnpolicyRatioErr}}},
             "Before the first update of fresh data the ratio must be 1 exactly, so 0 is right. "
             "Anything else: worker and learner disagree about the same step.");
  out +=
      Figure(history, {.title = "KL to the base model", .unit = "per element", .y_min = 0},
             {{"KL", {metric::kTrainKlDiv}}},
             "How far the policy has moved from where it started. A sudden jump often comes just "
             "before a collapse.");
  out += Figure(history, {.title = "Staleness", .unit = "learner steps", .y_min = 0},
                {{"mean", {metric::kBufferStalenessMean}},
                 {"95th percentile", {metric::kBufferStalenessP95}}},
                "Learner steps between the weights that made a sample and the update that used it. "
                "Fresh samples never exceed the budget in the configuration.");
  out += Figure(history, {.title = "Replay buffer", .unit = "entries", .y_min = 0},
                {{"entries", {metric::kBufferSize}}},
                "The best trajectory of each prompt seen so far, one per prompt at most. It grows "
                "until capacity, then the lowest is replaced.");
  return out + "</div>\n";
}

std::string TimeCharts(const History& history) {
  std::vector<Wanted> parts;
  const metric::StepMetricFamily& phases = metric::kTimePhaseS;
  for (const std::string& name : history.NamesWithPrefix(std::string(phases.before))) {
    if (name == metric::kTimeWallS.name || name == metric::kTimeStepS.name) continue;
    const auto phase = phases.ValueIn(name);
    if (!phase.has_value()) continue;
    std::string label(*phase);
    std::replace(label.begin(), label.end(), '_', ' ');
    parts.push_back({label, {name}});
  }
  std::string out = "<h2>Where does the time go?</h2><div class=\"charts\">\n";
  out += Figure(history, {.title = "Step time", .unit = "seconds", .stacked = true}, parts,
                "The parts of a learner step, on top of each other. A wide wait for samples means "
                "that more rollout workers would help.");
  out += Figure(history, {.title = "Throughput", .unit = "images per second", .y_min = 0},
                {{"images/s", {metric::kThroughputSamplesPerS}}},
                "Images sampled, scored and trained on, over the time of the step.");
  return out + "</div>\n";
}

std::string Configuration(const std::filesystem::path& run_dir) {
  const auto config = ReadFile(run_dir / "config.resolved.yaml", kConfigBytesMax);
  if (!config.ok()) return "";
  return absl::StrCat("<details><summary>Configuration of this run</summary><pre>",
                      EscapeHtml(*config), "</pre></details>\n");
}

}  // namespace

absl::Status WriteReport(const std::filesystem::path& run_dir) {
  OXBOW_ASSIGN_OR_RETURN(const auto lines, ReadMetrics(run_dir / kMetricsFile));
  const History history(lines);
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(run_dir, ignored);
  const std::string name = (whole.has_filename() ? whole : whole.parent_path()).filename().string();
  const std::string lead = history.empty() ? "No step has been logged yet."
                                           : "Reinforcement learning of a flow-matching model.";
  const std::string body =
      absl::StrCat("<h1>", EscapeHtml(name), "</h1><p class=\"lead\">", lead, "</p>\n",
                   Headline(history), Images(run_dir), LearningCharts(history),
                   OffPolicyCharts(history), TimeCharts(history), Configuration(run_dir));
  return WriteFileAtomically(run_dir / "report.html", Page(absl::StrCat("oxbow run ", name), body));
}

}  // namespace oxbow::io
