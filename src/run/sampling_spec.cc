// SPDX-License-Identifier: Apache-2.0
#include "run/sampling_spec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "config/chosen_method.h"
#include "core/flow/schedule.h"
#include "io/picture_file.h"

namespace oxbow::run {

namespace {

uint64_t LatentBytes(const v1::SamplingConfig& sampling, const std::vector<int64_t>& shape) {
  uint64_t bytes = sampling.storage() == v1::STORAGE_D_TYPE_F32 ? 4 : 2;
  for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

constexpr int kHoldOfSlidingWindows = 25;  // As in MixGRPO, arXiv:2507.21802.

// Enums of a config count from 1 in the order of the core's, which count from 0 to `kLast`.
// kInvalidArgument for one that is not set.
template <auto kLast, auto kConfigLast>
absl::StatusOr<decltype(kLast)> FromConfig(decltype(kConfigLast) value, const char* key) {
  static_assert(static_cast<int>(kLast) == static_cast<int>(kConfigLast) - 1);
  const int number = static_cast<int>(value) - 1;
  if (number >= 0 && number <= static_cast<int>(kLast)) return static_cast<decltype(kLast)>(number);
  return absl::InvalidArgumentError(absl::StrCat(key, " is not set"));
}

bool IsDrawn(flow::WindowKind kind) {
  return kind == flow::WindowKind::kRandom || kind == flow::WindowKind::kSubset;
}

absl::Status CheckFixed(const flow::WindowPlan& plan) {
  const std::vector<int>& steps = plan.steps;
  const bool rising = std::adjacent_find(steps.begin(), steps.end(),
                                         [](int a, int b) { return a >= b; }) == steps.end();
  if (!steps.empty() && rising && steps.front() >= plan.begin && steps.back() < plan.end) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.window.steps must list rising steps of those that may be stochastic, ",
                   plan.begin, " to ", plan.end - 1, ": ", steps.size(), " given"));
}

constexpr uint32_t kStepsMax = 10'000;

absl::StatusOr<flow::Compression> CompressionOf(const v1::SamplingConfig& config) {
  const double share = config.compression().share();
  if (share == 1 || !config.has_compression()) return flow::Compression{};
  if (!(share > 0 && share < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.compression.share must be above 0 and at most 1: ", share));
  }
  if (config.shift_terminal() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.compression.share takes levels below the last of a stretched grid: "
                     "set it to 1, as sampling.shift_terminal is ",
                     config.shift_terminal()));
  }
  return flow::Compression{
      .share = share, .shift = config.shift(), .carry = config.compression().carry()};
}

}  // namespace

absl::StatusOr<flow::SolverKind> SolverOf(v1::SolverKind kind) {
  return FromConfig<flow::SolverKind::kDpmppHeun, v1::SOLVER_KIND_DPMPP_HEUN>(kind,
                                                                              "sampling.solver");
}

absl::StatusOr<flow::WindowPlan> WindowFromConfig(const v1::SamplingConfig& config) {
  const v1::WindowConfig& window = config.window();
  OXBOW_ASSIGN_OR_RETURN(const flow::WindowKind kind,
                         (FromConfig<flow::WindowKind::kExpDecay, v1::WINDOW_KIND_EXP_DECAY>(
                             window.kind(), "sampling.window.kind")));
  const uint64_t end = std::min(uint64_t{config.sde_first()} + config.sde_count(),
                                std::max(uint64_t{config.steps()}, uint64_t{1}) - 1);
  flow::WindowPlan plan{.kind = kind,
                        .begin = static_cast<int>(config.sde_first()),
                        .end = static_cast<int>(end),
                        .steps = {window.steps().begin(), window.steps().end()},
                        .size = static_cast<int>(window.size()),
                        .stride = static_cast<int>(window.stride()),
                        .hold = static_cast<int>(window.hold())};
  if (plan.begin >= plan.end) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.sde_first and sde_count leave no step before the last of ",
                     config.steps(), ": ", config.sde_first(), ", ", config.sde_count()));
  }
  if (plan.kind == flow::WindowKind::kAll) return plan;
  if (plan.kind == flow::WindowKind::kFixed) {
    OXBOW_RETURN_IF_ERROR(CheckFixed(plan));
    return plan;
  }
  if (plan.size < 1 || plan.size > plan.end - plan.begin) {
    return absl::InvalidArgumentError(absl::StrCat("sampling.window.size must be 1 to ",
                                                   plan.end - plan.begin, ": ", window.size()));
  }
  if (!IsDrawn(plan.kind) && plan.stride < 1) {
    return absl::InvalidArgumentError("sampling.window.stride must be at least 1: 0");
  }
  plan.stride = std::max(plan.stride, 1);
  if (plan.hold == 0) plan.hold = IsDrawn(plan.kind) ? 1 : kHoldOfSlidingWindows;
  return plan;
}

void ResolveSampling(const io::PipelineSchedule& own, v1::SamplingConfig& config) {
  if (config.shift() == 0) {
    config.set_shift(own.shift);
    if (config.shift_terminal() == 0) config.set_shift_terminal(own.shift_terminal);
  }
  if (config.schedule() != v1::SCHEDULE_KIND_DIFFUSERS_DEFAULT) return;
  config.set_schedule(static_cast<v1::ScheduleKind>(static_cast<int>(own.grid) + 1));
  if (own.whole_timesteps) config.set_whole_timesteps(true);
}

flow::SplitTree SplitTreeOf(const v1::SamplingConfig& config) {
  return {.steps = {config.split_steps().begin(), config.split_steps().end()},
          .width = std::max(1u, config.split_width())};
}

absl::StatusOr<flow::SamplingSpec> SamplingSpecFromConfig(const v1::SamplingConfig& config) {
  if (config.steps() == 0 || config.steps() > kStepsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.steps must be 1 to ", kStepsMax, ": ", config.steps()));
  }
  if (!(config.shift() > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.shift must be above 0 (is it resolved?): ", config.shift()));
  }
  if (!(config.shift_terminal() >= 0 && config.shift_terminal() < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sampling.shift_terminal must be at least 0 and below 1: ", config.shift_terminal()));
  }
  OXBOW_ASSIGN_OR_RETURN(
      const flow::ScheduleKind grid,
      (FromConfig<flow::ScheduleKind::kUnipcFlowWhole, v1::SCHEDULE_KIND_UNIPC_FLOW_WHOLE>(
          config.schedule(), "sampling.schedule")));
  flow::SamplingSpec spec;
  OXBOW_ASSIGN_OR_RETURN(spec.dynamics,
                         (FromConfig<flow::DynamicsKind::kWanSde, v1::DYNAMICS_KIND_WAN_SDE>(
                             config.dynamics(), "sampling.dynamics")));
  const int steps = static_cast<int>(config.steps());
  spec.sigmas = flow::SigmaGrid(grid, steps, config.shift(), config.shift_terminal());
  spec.eta = config.eta();
  spec.guidance = config.guidance();
  spec.embedded_guidance = config.embedded_guidance();
  spec.whole_timesteps = config.whole_timesteps();
  OXBOW_ASSIGN_OR_RETURN(spec.solver, SolverOf(config.solver()));
  spec.sde.assign(config.steps(), false);
  if (spec.dynamics == flow::DynamicsKind::kOde) return spec;
  OXBOW_ASSIGN_OR_RETURN(const flow::WindowPlan window, WindowFromConfig(config));
  spec.sde = flow::StepFlags(flow::ReachableSteps(window), steps);
  spec.splits = SplitTreeOf(config);
  OXBOW_ASSIGN_OR_RETURN(spec.compression, CompressionOf(config));
  return spec;
}

v1::SamplingConfig EvaluationSampling(const v1::RunConfig& config) {
  v1::SamplingConfig sampling = config.sampling();
  if (config.eval().height() > 0) sampling.set_height(config.eval().height());
  if (config.eval().width() > 0) sampling.set_width(config.eval().width());
  return sampling;
}

absl::StatusOr<flow::SamplingSpec> EvaluationSpecFromConfig(const v1::RunConfig& config) {
  v1::SamplingConfig ode = config.sampling();
  if (config.eval().steps() > 0) ode.set_steps(config.eval().steps());
  ode.set_dynamics(v1::DYNAMICS_KIND_ODE);
  ode.set_solver(config.eval().solver());
  return SamplingSpecFromConfig(ode);
}

flow::SentLatents SentLatentsOf(const v1::RunConfig& config) {
  if (config::ChosenMethod(config.method()).trains_final_latents()) {
    return flow::SentLatents::kFinal;
  }
  return config.method().anchor().weight() > 0 ? flow::SentLatents::kToTheEnd
                                               : flow::SentLatents::kTransitions;
}

uint64_t TrainedSteps(const v1::RunConfig& config) {
  if (config::ChosenMethod(config.method()).trains_final_latents()) {
    const v1::TimesConfig& times = config.method().times();
    const auto levels = static_cast<uint32_t>(times.fraction() * config.sampling().steps());
    return times.count() > 0 ? times.count() : levels;
  }
  const absl::StatusOr<flow::WindowPlan> window = WindowFromConfig(config.sampling());
  return window.ok() ? flow::WindowAt(*window, /*run_seed=*/0, /*step=*/0).size() : 0;
}

uint64_t RowsOfPass(const v1::RunConfig& config) {
  const v1::BatchConfig& batch = config.batch();
  const uint64_t images = uint64_t{batch.groups()} * batch.group_size();
  const uint64_t of_update = (images + batch.updates() - 1) / batch.updates();
  const uint64_t ranks = std::max(1u, config.learner().ranks());
  const uint64_t samples = (of_update + ranks - 1) / ranks;
  const uint64_t steps = TrainedSteps(config);
  if (batch.rows_per_pass() == 0 || steps == 0) return samples * steps;
  const uint64_t whole = batch.rows_per_pass() / steps;
  const rl::MethodFacts& method = config::ChosenMethod(config.method());
  if (whole == 0 && !method.whole_samples) return batch.rows_per_pass();
  return steps * std::min(samples, std::max<uint64_t>(1, whole));
}

uint64_t LatentsMax(const v1::RunConfig& config) {
  const flow::SentLatents sent = SentLatentsOf(config);
  if (sent == flow::SentLatents::kFinal) return 1;
  const absl::StatusOr<flow::WindowPlan> window = WindowFromConfig(config.sampling());
  // A stochastic tail brings all latents from where its head ends.
  const bool tails =
      config.replay().fraction() > 0 && config.sampling().tail() == v1::TAIL_KIND_SDE;
  if (tails || !window.ok() || sent == flow::SentLatents::kToTheEnd)
    return config.sampling().steps() + 1;
  return static_cast<uint64_t>(flow::LongestSpan(*window)) + 1;
}

uint64_t GroupBytesMax(const v1::RunConfig& config, const std::vector<int64_t>& latent_shape) {
  return LatentBytes(config.sampling(), latent_shape) * LatentsMax(config) *
         config.batch().group_size();
}

uint64_t SinkBytesNeeded(const v1::RunConfig& config, const std::vector<int64_t>& latent_shape) {
  // Groups that are replaced are kept by their rank until the step is trained.
  const uint64_t groups =
      uint64_t{config.batch().groups()} * (config.off_policy().staleness_max() + 2) +
      config.batch().dynamic_sampling_max();
  return GroupBytesMax(config, latent_shape) * groups;
}

uint64_t EntryBytes(const v1::SamplingConfig& sampling, const std::vector<int64_t>& latent_shape,
                    uint64_t conditioning_bytes) {
  const uint64_t latents = uint64_t{sampling.sde_first()} + sampling.sde_count() + 1;
  return LatentBytes(sampling, latent_shape) * latents + conditioning_bytes +
         io::PreviewBytesAbout(sampling.width(), sampling.height(), sampling.frames());
}

}  // namespace oxbow::run
