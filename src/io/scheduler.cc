// SPDX-License-Identifier: Apache-2.0
#include "io/scheduler.h"

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

using Json = nlohmann::json;

struct Use {
  enum class Kind {
    kNone,  // The class's own solver's, or another class's: diffusers keeps keys of the scheduler
            // that one was made of.
    kRead,  // By SchedulerShift and ReadPipelineSchedule.
    kOnly,  // With one value.
    kUnknown,  // Not a key of this class, and easily taken for one.
  } kind = Kind::kNone;
  Json value = {};   // The one that there is here.
  Json absent = {};  // diffusers' default.
};

struct Row {
  Use euler = {};
  Use unipc = {};
};

Use Only(const Json& value) { return {Use::Kind::kOnly, value, value}; }

const std::map<std::string, Row, std::less<>>& Table() {
  static const Use kNone;
  static const Use kRead{.kind = Use::Kind::kRead};
  static const auto& table = *new std::map<std::string, Row, std::less<>>{
      {"shift", {kRead, {.kind = Use::Kind::kUnknown}}},
      {"flow_shift", {kNone, kRead}},
      {"use_dynamic_shifting", {kRead, Only(false)}},
      {"base_shift", {kRead, kNone}},
      {"max_shift", {kRead, kNone}},
      {"base_image_seq_len", {kRead, kNone}},
      {"max_image_seq_len", {kRead, kNone}},
      {"time_shift_type", {kRead, kNone}},
      {"shift_terminal", {kRead, Only(nullptr)}},
      {"num_train_timesteps", {Only(1000), Only(1000)}},
      {"use_karras_sigmas", {Only(false), Only(false)}},
      {"use_exponential_sigmas", {Only(false), Only(false)}},
      {"use_beta_sigmas", {Only(false), Only(false)}},
      {"stochastic_sampling", {Only(false), Only(false)}},
      {"invert_sigmas", {Only(false), Only(false)}},
      {"use_flow_sigmas", {kNone, {Use::Kind::kOnly, true, false}}},
      {"prediction_type", {kNone, {Use::Kind::kOnly, "flow_prediction", "epsilon"}}},
      {"final_sigmas_type", {kNone, Only("zero")}},
      {"thresholding", {kNone, Only(false)}},
  };
  return table;
}

// Keys of solvers, and of noise levels that are not those of a flow.
constexpr std::array<std::string_view, 24> kWithoutMeaning = {
    "algorithm_type",
    "beta_end",
    "beta_schedule",
    "beta_start",
    "clip_sample",
    "disable_corrector",
    "dynamic_thresholding_ratio",
    "euler_at_final",
    "lambda_min_clipped",
    "lower_order_final",
    "predict_x0",
    "rescale_betas_zero_snr",
    "sample_max_value",
    "set_alpha_to_one",
    "sigma_max",
    "sigma_min",
    "skip_prk_steps",
    "solver_order",
    "solver_p",
    "solver_type",
    "steps_offset",
    "timestep_spacing",
    "trained_betas",
    "variance_type",
};

bool IsKeyWithoutMeaning(std::string_view key) {
  for (const std::string_view known : kWithoutMeaning) {
    if (key == known) return true;
  }
  return key.starts_with('_');
}

std::string ShownValue(const Json& value) {
  return value.is_primitive() ? value.dump(-1, ' ', true) : value.type_name();
}

constexpr double kNumberMax = 1e9;
constexpr char kShiftTerminal[] = "shift_terminal";

// A number of the scheduler's config, `absent` if there is none.
absl::StatusOr<double> PositiveOr(const Json& config, const char* key, double absent) {
  const Json& found = MemberOf(config, key);
  if (found.is_null()) return absent;
  const double value = found.is_number() ? found.get<double>() : 0;
  if (value > 0 && value <= kNumberMax) return value;
  return absl::DataLossError(
      absl::StrCat("scheduler_config.json: ", key, " is not a positive number: ", found.dump()));
}

absl::StatusOr<double> DynamicShiftOf(const Json& config, int64_t image_tokens) {
  OXBOW_ASSIGN_OR_RETURN(const double base, PositiveOr(config, "base_shift", 0.5));
  OXBOW_ASSIGN_OR_RETURN(const double most, PositiveOr(config, "max_shift", 1.15));
  OXBOW_ASSIGN_OR_RETURN(const double base_tokens, PositiveOr(config, "base_image_seq_len", 256));
  OXBOW_ASSIGN_OR_RETURN(const double most_tokens, PositiveOr(config, "max_image_seq_len", 4096));
  const double shift =
      flow::DynamicShift(image_tokens, base, most, static_cast<int64_t>(base_tokens),
                         static_cast<int64_t>(most_tokens));
  if (!(shift > 0) || !std::isfinite(shift)) {
    return absl::DataLossError("scheduler_config.json: its shifts and sizes give no finite shift");
  }
  return shift;
}

bool IsDynamic(const Json& config) {
  const Json& dynamic = MemberOf(config, "use_dynamic_shifting");
  return !dynamic.is_null() && dynamic != false;
}

// compute_empirical_mu of diffusers' FLUX.2 pipelines: a line through 10 and 200 steps, each of
// them a line in the tokens; of large images the second alone.
double Flux2Shift(int64_t image_tokens, int64_t steps) {
  constexpr int64_t kLarge = 4300;
  const auto tokens = static_cast<double>(image_tokens);
  const double at_10 = 8.73809524e-05 * tokens + 1.89833333;
  const double at_200 = 0.00016927 * tokens + 0.45666666;
  if (image_tokens > kLarge) return std::exp(at_200);
  const double slope = (at_200 - at_10) / 190;
  return std::exp(at_200 + slope * static_cast<double>(steps - 200));
}

absl::Status CheckSchedulerKeys(bool unipc, const Json& config) {
  const char* const name = unipc ? "UniPCMultistepScheduler" : "FlowMatchEulerDiscreteScheduler";
  for (const auto& [key, row] : Table()) {
    const Use& use = unipc ? row.unipc : row.euler;
    if (use.kind != Use::Kind::kOnly) continue;
    const auto found = config.find(key);
    const Json value = found == config.end() || found->is_null() ? use.absent : *found;
    if (value == use.value) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("scheduler_config.json: ", name, " is supported with ", key, " ",
                     use.value.dump(), " alone: ", ShownValue(value)));
  }
  for (const auto& [key, value] : config.items()) {
    const auto row = Table().find(key);
    const bool known =
        row == Table().end()
            ? IsKeyWithoutMeaning(key)
            : (unipc ? row->second.unipc : row->second.euler).kind != Use::Kind::kUnknown;
    if (known || value.is_null()) continue;
    return absl::FailedPreconditionError(absl::StrCat("scheduler_config.json: unknown key of ",
                                                      name, ", and its meaning may matter: ", key));
  }
  return absl::OkStatus();
}

// The keys are those of a grid and a step that there are here.
absl::StatusOr<Json> ConfigOf(const DiffusersComponent& scheduler) {
  Json config = ParseJson(scheduler.config_json);
  if (!config.is_object()) return absl::DataLossError("scheduler_config.json: not a JSON object");
  OXBOW_RETURN_IF_ERROR(CheckSchedulerKeys(IsUnipcScheduler(scheduler), config));
  return config;
}

}  // namespace

bool IsUnipcScheduler(const DiffusersComponent& scheduler) {
  return scheduler.class_name == "UniPCMultistepScheduler";
}

absl::StatusOr<double> SchedulerShift(const DiffusersComponent& scheduler, int64_t image_tokens) {
  OXBOW_ASSIGN_OR_RETURN(const Json config, ConfigOf(scheduler));
  if (IsUnipcScheduler(scheduler)) return PositiveOr(config, "flow_shift", 1.0);
  if (!IsDynamic(config)) return PositiveOr(config, "shift", 1.0);
  const Json type = config.value("time_shift_type", Json());
  if (config["use_dynamic_shifting"] != true || (!type.is_null() && type != "exponential")) {
    return absl::FailedPreconditionError(
        "scheduler_config.json asks for a time shift other than exponential (time_shift_type); set "
        "sampling.shift");
  }
  return DynamicShiftOf(config, image_tokens);
}

absl::StatusOr<PipelineSchedule> ReadPipelineSchedule(const DiffusersComponents& components,
                                                      int64_t image_tokens, int64_t steps,
                                                      double shift) {
  OXBOW_ASSIGN_OR_RETURN(const Pipeline* const pipeline, PipelineOf(components));
  const DiffusersComponent& scheduler = components.at("scheduler");
  PipelineSchedule schedule{.grid = pipeline->grid, .shift = shift};
  if (IsUnipcScheduler(scheduler)) {
    schedule.grid = flow::ScheduleKind::kUnipcFlowWhole;
    schedule.whole_timesteps = true;
  }
  OXBOW_ASSIGN_OR_RETURN(const Json config, ConfigOf(scheduler));
  if (shift > 0) return schedule;
  OXBOW_ASSIGN_OR_RETURN(schedule.shift, SchedulerShift(scheduler, image_tokens));
  if (pipeline->shift_by_steps && IsDynamic(config)) {
    schedule.shift = Flux2Shift(image_tokens, steps);
  }
  OXBOW_ASSIGN_OR_RETURN(schedule.shift_terminal, PositiveOr(config, kShiftTerminal, 0));
  if (schedule.shift_terminal < 1) return schedule;
  return absl::DataLossError(absl::StrCat("scheduler_config.json: ", kShiftTerminal,
                                          " is not below 1: ", schedule.shift_terminal));
}

}  // namespace oxbow::io
