// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/report/run_summary.h"
#include "cli/run_option.h"
#include "cli/simulate/simulation_costs.h"
#include "cli/simulate/simulation_table.h"
#include "config/run_config.h"
#include "simulate/run_model.h"
#include "simulate/simulation.h"

namespace oxbow::cli {
namespace {

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
  std::optional<uint32_t> ranks;
  double groups_per_worker = 0;
  double workers_per_rank = 0;
  std::optional<uint64_t> steps;
  std::optional<uint64_t> seed;
  std::optional<uint32_t> in_flight;
  std::optional<uint32_t> batch;
  std::optional<uint32_t> weight_fanout;
  std::optional<uint32_t> reward_servers;
  std::optional<uint64_t> checkpoint_every;
  std::optional<double> lease_s;
  std::optional<double> silent_share;
  std::optional<double> speculate;
  bool json = false;
  std::string svg;
  std::string write_costs;
};

template <class T>
void Override(const std::optional<T>& flag, T& value) {
  if (flag.has_value()) value = *flag;
}

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
  Override(flags.ranks, model.ranks);
  Override(flags.steps, model.steps);
  Override(flags.seed, model.seed);
  Override(flags.in_flight, model.groups_in_flight);
  Override(flags.batch, model.batch_groups_max);
  Override(flags.weight_fanout, model.weight_fanout);
  Override(flags.reward_servers, model.reward_servers);
  Override(flags.checkpoint_every, model.checkpoint_every);
  Override(flags.lease_s, model.lease_s);
  Override(flags.silent_share, model.silent_share);
  Override(flags.speculate, model.stragglers.quantile);
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
  auto* ranks = command.add_option("--ranks", f.ranks, "learner ranks");
  command.add_option("--workers-per-rank", f.workers_per_rank, "ranks grow with the workers")
      ->excludes(ranks);
}

void AddRuleOptions(CLI::App& command, SimulationFlags& f) {
  command.add_option("--steps", f.steps, "learner steps");
  command.add_option("--seed", f.seed, "of durations and deaths");
  command.add_option("--in-flight", f.in_flight, "leases a worker holds at most");
  command.add_option("--batch", f.batch, "groups in one denoising batch; 0: all that wait");
  command.add_option("--weight-fanout", f.weight_fanout,
                     "copies of the weights each relay sends; 0: no relays");
  command.add_option("--reward-servers", f.reward_servers, "0: enough");
  command.add_option("--checkpoint-every", f.checkpoint_every, "learner steps");
  command.add_option("--lease-seconds", f.lease_s, "without renewal a lease ends after this");
  command.add_option("--silent-share", f.silent_share, "deaths noticed only when leases run out");
  command.add_option("--speculate", f.speculate,
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
  command->callback([flags, &exit_code] {
    const absl::Status status = SimulateRun(*flags);
    if (!status.ok()) std::cerr << "oxbow simulate: " << status.message() << "\n";
    exit_code = ExitCodeOf(status);
  });
}

}  // namespace oxbow::cli
