// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate/simulation_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace oxbow::cli {
namespace {

// 1,234 bytes as people read them: at most four characters and a unit.
std::string Rate(double bytes_per_second) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes_per_second >= 1000 && unit < 4) {
    bytes_per_second /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.3g %s/s", bytes_per_second, units[unit]);
}

double Percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

// A row's settings beside the workers, and beside what grows with them unless it is asked for.
std::string SettingsOf(const simulate::RunModel& m, bool with_groups) {
  std::string text = absl::StrFormat("S %d, v %d", m.staleness_max, m.publish_every);
  if (with_groups) absl::StrAppendFormat(&text, ", U %d", m.groups_per_step);
  if (m.failures_per_hour > 0) absl::StrAppendFormat(&text, ", %g deaths/h", m.failures_per_hour);
  return text;
}

nlohmann::ordered_json RowOf(const SimulatedRun& run) {
  const simulate::RunModel& m = run.model;
  const simulate::Outcome& o = run.outcome;
  const double wall = o.wall_s;
  return {{"workers", m.workers},
          {"ranks", m.ranks},
          {"groups_per_step", m.groups_per_step},
          {"staleness_max", m.staleness_max},
          {"publish_every", m.publish_every},
          {"groups_in_flight", m.groups_in_flight},
          {"failures_per_hour", m.failures_per_hour},
          {"learner_failures_per_hour", m.learner_failures_per_hour},
          {"speculation_quantile", m.stragglers.quantile},
          {"seed", m.seed},
          {"steps", o.steps},
          {"wall_s", wall},
          {"step_s", o.step_s()},
          {"images_per_s", static_cast<double>(o.samples) / wall},
          {"samples", o.samples},
          {"learner_utilisation", o.utilisation()},
          {"learner_wait_rollouts_share", o.learner.wait_rollouts_s / wall},
          {"learner_wait_weights_share", o.learner.wait_weights_s / wall},
          {"learner_publish_share", o.learner.publish_s / wall},
          {"learner_other_share", o.learner.other_s / wall},
          {"learner_down_share", (o.learner.down_s + o.learner.lost_s) / wall},
          {"worker_sampling_share", o.sampling_s / wall / m.workers},
          {"staleness_mean", o.staleness_mean},
          {"staleness_max_seen", o.staleness_max},
          {"discarded_share", o.discarded_share()},
          {"discarded_death_s", o.discarded.death_s},
          {"discarded_expiry_s", o.discarded.expiry_s},
          {"discarded_duplicate_s", o.discarded.duplicate_s},
          {"discarded_failure_s", o.discarded.failure_s},
          {"discarded_restart_s", o.discarded.restart_s},
          {"leases_granted", o.leases.granted},
          {"leases_second", o.leases.second},
          {"leases_expired", o.leases.expired},
          {"worker_deaths", o.worker_deaths},
          {"learner_deaths", o.learner_deaths},
          {"steps_repeated", o.steps_repeated},
          {"coordinator_messages_per_s", static_cast<double>(o.messages) / wall},
          {"coordinator_busy_share", o.coordinator_busy_s / wall},
          {"learner_egress_bytes_per_s", o.learner_egress_bytes / wall},
          {"ingest_bytes_per_s", o.ingest_bytes / wall},
          {"events", o.events},
          {"limited_by", simulate::LimitOf(m, o)}};
}

// The drawing's frame, in SVG units.
constexpr double kWidth = 640, kHeight = 320, kLeft = 50, kRight = 190, kTop = 34, kBottom = 40;
constexpr const char* kColours[] = {"#3b6fb6", "#c2571a", "#3d8b37", "#9b3fa0",
                                    "#b8860b", "#2a9d8f", "#8c564b", "#607080"};

double AtX(double workers, double low, double high) {
  const double share = high > low ? std::log(workers / low) / std::log(high / low) : 0.5;
  return kLeft + share * (kWidth - kLeft - kRight);
}

double AtY(double share) { return kHeight - kBottom - share * (kHeight - kTop - kBottom); }

std::string Frame(const std::vector<uint32_t>& workers, const std::string& title) {
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"#fff\"/>\n<text x=\"%.0f\" y=\"18\" font-size=\"14\">%s</text>\n",
      kWidth, kHeight, kLeft, title);
  for (const int percent : {0, 25, 50, 75, 100}) {
    const double y = AtY(percent / 100.0);
    absl::StrAppendFormat(&svg,
                          "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                          "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%d %%</text>\n",
                          kLeft, kWidth - kRight, y, y, kLeft - 6, y + 4, percent);
  }
  for (const uint32_t count : workers) {
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%d</text>\n",
                          AtX(count, workers.front(), workers.back()), kHeight - kBottom + 16,
                          count);
  }
  absl::StrAppendFormat(&svg, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">workers</text>\n",
                        kWidth - kRight, kHeight - 6);
  return svg;
}

}  // namespace

std::string SimulationTable(const std::vector<SimulatedRun>& runs) {
  std::string text = absl::StrFormat(
      "%7s %5s %6s %2s %2s %9s %9s %7s %8s %8s %6s %9s %9s %10s %10s %10s  %s\n", "workers",
      "ranks", "U", "S", "v", "s/step", "images/s", "learner", "waits:", "waits:", "worker",
      "staleness", "discarded", "lease", "weights", "experience", "limited by");
  absl::StrAppendFormat(&text,
                        "%7s %5s %6s %2s %2s %9s %9s %7s %8s %8s %6s %9s %9s %10s %10s %10s\n", "",
                        "", "", "", "", "", "", "updates", "rollouts", "weights", "busy",
                        "mean max", "work", "messages", "out", "in");
  for (const SimulatedRun& run : runs) {
    const simulate::RunModel& m = run.model;
    const simulate::Outcome& o = run.outcome;
    absl::StrAppendFormat(
        &text,
        "%7d %5d %6d %2d %2d %9.4g %9.4g %5.1f %% %6.1f %% %6.1f %% %4.0f %% %5.2f %3d %7.2f %% "
        "%8.4g/s %10s %10s  %s\n",
        m.workers, m.ranks, m.groups_per_step, m.staleness_max, m.publish_every, o.step_s(),
        static_cast<double>(o.samples) / o.wall_s, 100 * o.utilisation(),
        Percent(o.learner.wait_rollouts_s, o.wall_s), Percent(o.learner.wait_weights_s, o.wall_s),
        Percent(o.sampling_s, o.wall_s * m.workers), o.staleness_mean, o.staleness_max,
        100 * o.discarded_share(), static_cast<double>(o.messages) / o.wall_s,
        Rate(o.learner_egress_bytes / o.wall_s), Rate(o.ingest_bytes / o.wall_s),
        simulate::LimitOf(m, o));
  }
  return text;
}

std::string SimulationJson(const std::vector<SimulatedRun>& runs) {
  std::string text;
  for (const SimulatedRun& run : runs) absl::StrAppend(&text, RowOf(run).dump(), "\n");
  return text;
}

std::string UtilisationSvg(const std::vector<SimulatedRun>& runs, const std::string& title) {
  std::vector<uint32_t> workers;
  std::map<std::string, std::map<uint32_t, double>> lines;
  std::set<std::pair<std::string, uint32_t>> seen;
  bool with_groups = false;  // Only if U differs where nothing else does.
  for (const SimulatedRun& run : runs) {
    with_groups |= !seen.insert({SettingsOf(run.model, false), run.model.workers}).second;
  }
  for (const SimulatedRun& run : runs) {
    workers.push_back(run.model.workers);
    lines[SettingsOf(run.model, with_groups)][run.model.workers] = run.outcome.utilisation();
  }
  std::sort(workers.begin(), workers.end());
  workers.erase(std::unique(workers.begin(), workers.end()), workers.end());
  std::string svg = Frame(workers, title);
  size_t index = 0;
  for (const auto& [name, points] : lines) {
    const char* colour = kColours[index % std::size(kColours)];
    std::string path;
    for (const auto& [count, share] : points) {
      absl::StrAppendFormat(&path, "%.1f,%.1f ", AtX(count, workers.front(), workers.back()),
                            AtY(share));
    }
    absl::StrAppendFormat(
        &svg,
        "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" "
        "stroke-width=\"2\"/>\n<text x=\"%.0f\" y=\"%.0f\" fill=\"%s\">%s</text>\n",
        path, colour, kWidth - kRight + 10, kTop + 16.0 * (index + 1), colour, name);
    ++index;
  }
  return svg + "</svg>\n";
}

}  // namespace oxbow::cli
