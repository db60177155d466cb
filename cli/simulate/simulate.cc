// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/report/run_summary.h"
#include "cli/run_option.h"
#include "cli/simulate/simulation_costs.h"
#include "cli/terminal.h"
#include "config/run_config.h"
#include "simulate/run_model.h"
#include "simulate/simulation.h"

namespace oxbow::cli {

namespace {

struct SimulatedRun {
  simulate::RunModel model;
  simulate::Outcome outcome;
};

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

// One JSON object per line.
std::string SimulationJson(const std::vector<SimulatedRun>& runs) {
  std::string text;
  for (const SimulatedRun& run : runs) absl::StrAppend(&text, RowOf(run).dump(), "\n");
  return text;
}

// A standalone SVG: learner utilisation over workers (logarithmic), one line for each combination
// of the other settings.
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

// Empty lists and absent values leave what the run, its file or the preset says.
struct SimulationFlags {
  std::string file;
  std::vector<std::string> set;
  std::string from_run;
  std::string preset = "digits";
  std::string costs_file;
  std::vector<std::string> costs;
  std::vector<uint32_t> workers;
  std::vector<uint64_t> staleness;
  std::vector<uint64_t> publish_every;
  std::vector<uint64_t> groups;
  std::vector<double> failures_per_hour;
  std::vector<double> learner_failures_per_hour;
  double groups_per_worker = 0;
  double workers_per_rank = 0;
  // Each sets in the model what a flag gives.
  std::vector<std::function<void(simulate::RunModel&)>> rules;
  bool json = false;
  std::string svg;
  std::string write_costs;
};

// The model before any flag: a measured run, or a preset, with a run file's settings over it.
absl::StatusOr<simulate::RunModel> Base(const SimulationFlags& flags, std::string& source) {
  simulate::RunModel model;
  if (!flags.from_run.empty()) {
    OXBOW_RETURN_IF_ERROR(FindRun(flags.from_run));
    OXBOW_ASSIGN_OR_RETURN(const MeasuredRun run, MeasureRun(flags.from_run));
    model = run.model;
    source = absl::StrFormat(
        "costs measured in %s: %d steps of %.3f s on average, %.0f %% of it in updates; the "
        "network "
        "is not measured",
        flags.from_run, run.steps, run.step_s, 100 * run.update_share);
  } else {
    const std::optional<simulate::Preset> preset = simulate::FindPreset(flags.preset);
    if (!preset.has_value()) {
      std::string known;
      for (const simulate::Preset& each : simulate::Presets())
        absl::StrAppend(&known, " ", each.name);
      return absl::InvalidArgumentError(
          absl::StrCat("no such preset: ", flags.preset, "; there are", known));
    }
    OXBOW_ASSIGN_OR_RETURN(model, ModelOfPreset(*preset));
    source = absl::StrCat("preset ", preset->name, ": ", preset->meaning, "\n", preset->assumption);
  }
  if (!flags.file.empty()) {
    OXBOW_ASSIGN_OR_RETURN(
        const config::ResolvedConfig resolved,
        config::LoadRunConfig(flags.file, flags.set, config::ProcessEnvironment()));
    simulate::RunModel asked = RunModelOf(resolved.config);
    asked.costs = model.costs;
    asked.ranks = model.ranks;
    asked.batch_groups_max = model.batch_groups_max;
    model = asked;
  }
  if (!flags.costs_file.empty()) {
    OXBOW_RETURN_IF_ERROR(ReadCostsFile(flags.costs_file, model.costs));
    absl::StrAppend(&source, "\ncosts over it from ", flags.costs_file);
  }
  for (const std::string& cost : flags.costs) OXBOW_RETURN_IF_ERROR(SetCost(cost, model.costs));
  for (const auto& set : flags.rules) set(model);
  return model;
}

// Every value of a list in every model; an empty list changes nothing.
template <class T, class U>
void Expand(const std::vector<T>& values, U simulate::RunModel::*member,
            std::vector<simulate::RunModel>& models) {
  if (values.empty()) return;
  std::vector<simulate::RunModel> expanded;
  for (const simulate::RunModel& model : models) {
    for (const T& value : values) {
      expanded.push_back(model);
      expanded.back().*member = value;
    }
  }
  models = std::move(expanded);
}

std::vector<simulate::RunModel> Grid(const SimulationFlags& flags, const simulate::RunModel& base) {
  std::vector<simulate::RunModel> models{base};
  Expand(flags.groups, &simulate::RunModel::groups_per_step, models);
  Expand(flags.failures_per_hour, &simulate::RunModel::failures_per_hour, models);
  Expand(flags.learner_failures_per_hour, &simulate::RunModel::learner_failures_per_hour, models);
  Expand(flags.staleness, &simulate::RunModel::staleness_max, models);
  Expand(flags.publish_every, &simulate::RunModel::publish_every, models);
  Expand(flags.workers, &simulate::RunModel::workers, models);
  // A grid of S and v holds pairs that cannot be; alone, such a pair is an error.
  if (flags.staleness.size() * flags.publish_every.size() > 1) {
    std::erase_if(models, [](const simulate::RunModel& model) {
      return model.staleness_max + 1 < model.publish_every;
    });
  }
  for (simulate::RunModel& model : models) {
    if (flags.groups_per_worker > 0) {
      model.groups_per_step = std::max<uint64_t>(
          1, static_cast<uint64_t>(std::llround(flags.groups_per_worker * model.workers)));
    }
    if (flags.workers_per_rank > 0) {
      model.ranks = std::max<uint32_t>(
          1, static_cast<uint32_t>(std::lround(model.workers / flags.workers_per_rank)));
    }
  }
  return models;
}

absl::Status SimulateRun(const SimulationFlags& flags) {
  std::string source;
  OXBOW_ASSIGN_OR_RETURN(const simulate::RunModel base, Base(flags, source));
  if (!flags.write_costs.empty()) {
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(flags.write_costs, CostsJson(base.costs)));
  }
  std::vector<SimulatedRun> runs;
  for (const simulate::RunModel& model : Grid(flags, base)) {
    OXBOW_ASSIGN_OR_RETURN(const simulate::Outcome outcome, simulate::Simulate(model));
    runs.push_back({model, outcome});
  }
  if (flags.json) {
    std::cout << SimulationJson(runs);
  } else {
    std::cout << source << "\n\n" << SimulationTable(runs);
  }
  if (flags.svg.empty()) return absl::OkStatus();
  const std::string title = flags.from_run.empty() ? flags.preset : "measured run";
  return WriteFileAtomically(flags.svg, UtilisationSvg(runs, "Learner utilisation, " + title));
}

void AddModelOptions(CLI::App& command, SimulationFlags& f) {
  command.add_option("RUN.yaml", f.file, "take U, G, S, v, leases and in-flight groups from it");
  command.add_option("--set", f.set, "KEY=VALUE over RUN.yaml; may be repeated")
      ->allow_extra_args(false);
  auto* from_run =
      command.add_option("--from-run", f.from_run, "measure the costs in this run's metrics.jsonl")
          ->transform(RunNamed);
  std::string presets = "costs, measured (digits) or assumed:";
  for (const simulate::Preset& preset : simulate::Presets()) {
    absl::StrAppend(&presets, " ", preset.name);
  }
  command.add_option("--preset", f.preset, presets)->excludes(from_run)->capture_default_str();
  command.add_option("--costs", f.costs_file, "JSON over them: {\"costs\": {\"group_s\": 2}}");
  command.add_option("--cost", f.costs, "NAME=VALUE over everything; may be repeated")
      ->allow_extra_args(false);
  command.add_option("--write-costs", f.write_costs, "write the costs used to this file");
}

// An option that sets one number of the model.
template <class T>
CLI::Option* AddRule(CLI::App& command, SimulationFlags& f, const char* name,
                     T simulate::RunModel::*member, const char* about) {
  return command.add_option_function<T>(
      name,
      [&f, member](const T& value) {
        f.rules.emplace_back([member, value](auto& model) { model.*member = value; });
      },
      about);
}

void AddGridOptions(CLI::App& command, SimulationFlags& f) {
  command.add_option("--workers", f.workers, "list: 8,64,1000")->delimiter(',');
  command
      .add_option("--staleness", f.staleness,
                  "staleness budgets S to compare, in learner steps: 0,1,2")
      ->delimiter(',');
  command
      .add_option("--publish-every", f.publish_every,
                  "learner steps between publications to compare: 1,2")
      ->delimiter(',');
  auto* groups =
      command.add_option("--groups", f.groups, "groups per learner step to compare: 8,16")
          ->delimiter(',');
  command.add_option("--groups-per-worker", f.groups_per_worker, "U grows with the workers")
      ->excludes(groups);
  command.add_option("--failures-per-hour", f.failures_per_hour, "list: deaths of one worker")
      ->delimiter(',');
  command
      .add_option("--learner-failures-per-hour", f.learner_failures_per_hour,
                  "list: deaths of one rank; each takes all ranks down")
      ->delimiter(',');
  auto* ranks = AddRule(command, f, "--ranks", &simulate::RunModel::ranks, "learner ranks");
  command.add_option("--workers-per-rank", f.workers_per_rank, "ranks grow with the workers")
      ->excludes(ranks);
}

void AddRuleOptions(CLI::App& command, SimulationFlags& f) {
  using Model = simulate::RunModel;
  AddRule(command, f, "--steps", &Model::steps, "learner steps");
  AddRule(command, f, "--seed", &Model::seed, "of durations and deaths");
  AddRule(command, f, "--in-flight", &Model::groups_in_flight, "leases a worker holds at most");
  AddRule(command, f, "--batch", &Model::batch_groups_max,
          "groups in one denoising batch; 0: all that wait");
  AddRule(command, f, "--weight-fanout", &Model::weight_fanout,
          "copies of the weights each relay sends; 0: no relays");
  AddRule(command, f, "--reward-servers", &Model::reward_servers, "0: enough");
  AddRule(command, f, "--checkpoint-every", &Model::checkpoint_every, "learner steps");
  AddRule(command, f, "--lease-seconds", &Model::lease_s,
          "without renewal a lease ends after this");
  AddRule(command, f, "--silent-share", &Model::silent_share,
          "deaths noticed only when leases run out");
  command.add_option_function<double>(
      "--speculate",
      [&f](const double& quantile) {
        f.rules.emplace_back([quantile](Model& model) { model.stragglers.quantile = quantile; });
      },
      "quantile of group times for second leases of stragglers; 0: none");
  command.add_flag("--json", f.json, "one object per line");
  command.add_option("--svg", f.svg, "draw learner utilisation over workers to this file");
}

}  // namespace

void AddSimulate(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<SimulationFlags>();  // Lives as long as the callback below.
  CLI::App* command =
      app.add_subcommand("simulate", "Predict a run at other sizes, in virtual time");
  command->footer(
      "Lists are tried in all combinations. See docs/scaling.md.\n"
      "Example: oxbow simulate --from-run runs/digits --groups-per-worker 4 --workers 1,8,64 "
      "--staleness 0,1");
  AddModelOptions(*command, *flags);
  AddGridOptions(*command, *flags);
  AddRuleOptions(*command, *flags);
  command->callback([flags, &exit_code] { exit_code = Ended("simulate", SimulateRun(*flags)); });
}

}  // namespace oxbow::cli
