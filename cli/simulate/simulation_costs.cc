// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate/simulation_costs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json.h"
#include "base/nearest_name.h"
#include "base/statistics.h"
#include "base/status_macros.h"
#include "config/run_config.h"
#include "io/metrics_file.h"
#include "metrics/step_metrics.h"

namespace oxbow::cli {
namespace {

using CostLine = std::map<std::string, double>;

constexpr size_t kStepsNeeded = 5;
constexpr double kMinShareOfOtherBatches = 0.05;  // Below it one cannot tell batch_s from group_s.

absl::Status Assign(const std::string& name, double value, simulate::Costs& costs) {
  if (!std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrCat("a cost is a finite number: ", name));
  }
  std::vector<std::string> names;
  for (const simulate::CostField& field : simulate::CostFields()) {
    if (name == field.name) {
      costs.*field.value = value;
      return absl::OkStatus();
    }
    names.emplace_back(field.name);
  }
  const std::string nearest = NearestName(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat("no such cost: ", name,
                   nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
}

double Value(const CostLine& line, const std::string& name) {
  const auto found = line.find(name);
  return found == line.end() || !std::isfinite(found->second) ? 0 : found->second;
}

double MeanOf(const std::vector<CostLine>& lines, const std::string& name) {
  std::vector<double> values;
  for (const CostLine& line : lines) values.push_back(Value(line, name));
  return Mean(values);
}

// Mean over the lines that have it: evaluations and checkpoints are not of every step.
double MeanWherePresent(const std::vector<CostLine>& lines, const std::string& name) {
  std::vector<double> values;
  for (const CostLine& line : lines) {
    if (line.contains(name)) values.push_back(Value(line, name));
  }
  return Mean(values);
}

// sample_s = batch_s x batches + group_s x U by least squares, if the batches of steps differ; else
// everything by the group.
void FitSampling(const std::vector<CostLine>& lines, double groups, simulate::Costs& costs) {
  const double batches = MeanOf(lines, metric::kRolloutBatches);
  const double seconds = MeanOf(lines, metric::kRolloutSampleS);
  double covariance = 0;
  double variance = 0;
  for (const CostLine& line : lines) {
    const double difference = Value(line, metric::kRolloutBatches) - batches;
    covariance += difference * (Value(line, metric::kRolloutSampleS) - seconds);
    variance += difference * difference;
  }
  const double count = static_cast<double>(lines.size());
  if (variance / count > kMinShareOfOtherBatches) costs.batch_s = covariance / variance;
  costs.batch_s = std::clamp(costs.batch_s, 0.0, 0.9 * seconds / std::max(batches, 1.0));
  costs.group_s = (seconds - costs.batch_s * batches) / groups;
  std::vector<double> logs;
  for (const CostLine& line : lines) {
    const double expected =
        costs.batch_s * Value(line, metric::kRolloutBatches) + costs.group_s * groups;
    const double factor = Value(line, metric::kRolloutSampleS) / expected;
    if (factor > 0) logs.push_back(std::log(factor));
  }
  costs.spread = StandardDeviation(logs, 1);
  // The file's times are means, a cost is a median.
  const double median = std::exp(-costs.spread * costs.spread / 2);
  costs.batch_s *= median;
  costs.group_s *= median;
}

// Numbers that presets and runs take from the services' settings.
void SetServices(const v1::ServiceConfig& services, simulate::RunModel& model) {
  model.weight_fanout = services.weight_fanout();
  model.lease_s = services.lease_seconds();
  model.stragglers = lease::StragglersAbove(services.speculation_factor());
}

// From publication to the last group, less what sampling and rewards account for.
double WeightsAndLeases(const std::vector<CostLine>& lines, const simulate::Costs& costs,
                        double workers) {
  std::vector<double> seconds;
  for (size_t i = 1; i < lines.size(); ++i) {
    // The learner was busy for long, or a reward server away: what the workers did meanwhile cannot
    // be seen.
    const CostLine& before = lines[i - 1];
    if (before.contains(metric::kTimeEvalS) || before.contains(metric::kTimeCheckpointS)) continue;
    if (lines[i].contains(metric::kTimeRewardsS)) continue;
    const double produced = Value(before, metric::kTimeOfferS) + Value(before, metric::kTimePlanS) +
                            Value(before, metric::kTimeLogS) + Value(lines[i], metric::kTimeWaitS);
    const double in_parallel =
        std::max(1.0, std::min(workers, Value(lines[i], metric::kRolloutWorkers)));
    seconds.push_back(produced - Value(lines[i], metric::kRolloutSampleS) / in_parallel -
                      costs.reward_latency_s);
  }
  return std::max(0.0, Mean(seconds));
}

}  // namespace

absl::Status ReadCosts(const std::string& text, simulate::Costs& costs) {
  const auto json = ParseJson(text);
  if (!json.is_object() || !json.contains("costs") || !json["costs"].is_object()) {
    return absl::InvalidArgumentError("a cost file is {\"costs\": {\"group_s\": 1.5, ...}}");
  }
  for (const auto& [name, value] : json["costs"].items()) {
    if (!value.is_number()) {
      return absl::InvalidArgumentError(absl::StrCat("a cost is a number: ", name));
    }
    OXBOW_RETURN_IF_ERROR(Assign(name, value.get<double>(), costs));
  }
  return absl::OkStatus();
}

absl::Status ReadCostsFile(const std::filesystem::path& path, simulate::Costs& costs) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return Annotate(ReadCosts(text, costs), path.string());
}

absl::Status SetCost(const std::string& assignment, simulate::Costs& costs) {
  const size_t equals = assignment.find('=');
  double value = 0;
  if (equals == std::string::npos || !absl::SimpleAtod(assignment.substr(equals + 1), &value)) {
    return absl::InvalidArgumentError(absl::StrCat("not NAME=NUMBER: ", assignment));
  }
  return Assign(assignment.substr(0, equals), value, costs);
}

std::string CostsJson(const simulate::Costs& costs) {
  nlohmann::ordered_json json;
  for (const simulate::CostField& field : simulate::CostFields()) {
    json["costs"][field.name] = costs.*field.value;
  }
  return json.dump(2) + "\n";
}

absl::StatusOr<simulate::RunModel> ModelOfPreset(const simulate::Preset& preset) {
  OXBOW_ASSIGN_OR_RETURN(const config::ResolvedConfig defaults, config::LoadRunConfig("", {}, {}));
  simulate::RunModel model = preset.model;
  SetServices(defaults.config.services(), model);
  return model;
}

simulate::RunModel RunModelOf(const v1::RunConfig& config) {
  simulate::RunModel model;
  model.seed = config.run().seed();
  model.steps = config.run().steps();
  model.workers = std::max(1u, config.services().rollout_workers());
  model.groups_per_step = config.batch().groups();
  model.group_size = config.batch().group_size();
  model.staleness_max = config.off_policy().staleness_max();
  model.publish_every = config.off_policy().publish_every();
  model.groups_in_flight = config.services().groups_in_flight();
  SetServices(config.services(), model);
  model.checkpoint_every = config.checkpoint().every();
  model.eval_every = config.eval().every();
  return model;
}

absl::StatusOr<MeasuredRun> MeasureRun(const std::filesystem::path& run_dir, int warm_up) {
  OXBOW_ASSIGN_OR_RETURN(const v1::RunConfig config,
                         config::LoadResolved(run_dir / "config.resolved.yaml"));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<CostLine> all,
                         io::ReadMetrics(run_dir / io::kMetricsFile));
  std::vector<CostLine> lines;
  for (const CostLine& line : all) {
    if (Value(line, metric::kStep) > warm_up && line.contains(metric::kRolloutBatches)) {
      lines.push_back(line);
    }
  }
  if (lines.size() < kStepsNeeded) {
    return absl::FailedPreconditionError(
        absl::StrCat("too few steps with ", metric::kRolloutBatches.name, " after the first ",
                     warm_up, " in ", (run_dir / io::kMetricsFile).string(), ": ", lines.size()));
  }
  MeasuredRun run{.model = RunModelOf(config)};
  run.steps = static_cast<int>(lines.size());
  run.step_s = MeanOf(lines, metric::kTimeStepS);
  run.update_share = MeanOf(lines, metric::kTimeUpdateS) / run.step_s;
  simulate::RunModel& model = run.model;
  simulate::Costs& costs = model.costs;
  const double groups = static_cast<double>(model.groups_per_step);
  costs = {};
  FitSampling(lines, groups, costs);
  costs.linger_s = 0.003;
  costs.reward_latency_s = MeanOf(lines, metric::kRolloutRewardSMean);
  costs.update_group_s = MeanOf(lines, metric::kTimeUpdateS) / groups;
  costs.publish_s = MeanWherePresent(lines, metric::kTimePublishS);
  costs.plan_s = MeanOf(lines, metric::kTimeOfferS) + MeanOf(lines, metric::kTimePlanS);
  costs.finish_s = MeanOf(lines, metric::kTimeLogS);
  costs.eval_s = MeanWherePresent(lines, metric::kTimeEvalS);
  costs.checkpoint_s = MeanWherePresent(lines, metric::kTimeCheckpointS);
  if (model.staleness_max == 0) costs.apply_s = WeightsAndLeases(lines, costs, model.workers);
  return run;
}

}  // namespace oxbow::cli
