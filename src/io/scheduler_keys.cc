// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "io/scheduler.h"

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

}  // namespace

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

}  // namespace oxbow::io
