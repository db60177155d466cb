#include "run/sampling_spec.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/flow/schedule.h"
#include "core/flow/window.h"
#include "run/window.h"

namespace oxbow::run {
namespace {

constexpr uint32_t kStepsMax = 10'000;

absl::StatusOr<flow::ScheduleKind> ScheduleOf(v1::ScheduleKind kind) {
  switch (kind) {
    case v1::SCHEDULE_KIND_DIFFUSERS_DEFAULT:
      return flow::ScheduleKind::kDiffusersDefault;
    case v1::SCHEDULE_KIND_LINSPACE:
      return flow::ScheduleKind::kLinspace;
    case v1::SCHEDULE_KIND_DANCE:
      return flow::ScheduleKind::kDance;
    case v1::SCHEDULE_KIND_UNIPC_FLOW:
      return flow::ScheduleKind::kUnipcFlow;
    default:
      return absl::InvalidArgumentError("sampling.schedule is not set");
  }
}

absl::StatusOr<flow::DynamicsKind> DynamicsOf(v1::DynamicsKind kind) {
  switch (kind) {
    case v1::DYNAMICS_KIND_ODE:
      return flow::DynamicsKind::kOde;
    case v1::DYNAMICS_KIND_FLOW_SDE:
      return flow::DynamicsKind::kFlowSde;
    case v1::DYNAMICS_KIND_DANCE_SDE:
      return flow::DynamicsKind::kDanceSde;
    case v1::DYNAMICS_KIND_CPS:
      return flow::DynamicsKind::kCps;
    case v1::DYNAMICS_KIND_WAN_SDE:
      return flow::DynamicsKind::kWanSde;
    default:
      return absl::InvalidArgumentError("sampling.dynamics is not set");
  }
}

absl::StatusOr<flow::SolverKind> SolverOf(v1::SolverKind kind) {
  switch (kind) {
    case v1::SOLVER_KIND_EULER:
      return flow::SolverKind::kEuler;
    case v1::SOLVER_KIND_DPMPP_2M:
      return flow::SolverKind::kDpmpp2m;
    case v1::SOLVER_KIND_DPMPP_HEUN:
      return flow::SolverKind::kDpmppHeun;
    default:
      return absl::InvalidArgumentError("sampling.solver is not set");
  }
}

}  // namespace

absl::StatusOr<flow::SamplingSpec> SamplingSpecFromConfig(const v1::SamplingConfig& config) {
  if (config.steps() == 0 || config.steps() > kStepsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.steps must be 1 to ", kStepsMax, ": ", config.steps()));
  }
  if (!(config.shift() > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.shift must be above 0 (is it resolved?): ", config.shift()));
  }
  OXBOW_ASSIGN_OR_RETURN(const flow::ScheduleKind schedule, ScheduleOf(config.schedule()));
  flow::SamplingSpec spec;
  OXBOW_ASSIGN_OR_RETURN(spec.dynamics, DynamicsOf(config.dynamics()));
  const int steps = static_cast<int>(config.steps());
  spec.sigmas = flow::SigmaGrid(schedule, steps, config.shift());
  spec.eta = config.eta();
  spec.guidance = config.guidance();
  OXBOW_ASSIGN_OR_RETURN(spec.solver, SolverOf(config.solver()));
  spec.sde.assign(config.steps(), false);
  if (spec.dynamics == flow::DynamicsKind::kOde) return spec;
  OXBOW_ASSIGN_OR_RETURN(const flow::WindowPlan window, WindowFromConfig(config));
  spec.sde = flow::StepFlags(flow::ReachableSteps(window), steps);
  return spec;
}

absl::StatusOr<flow::SamplingSpec> EvaluationSpecFromConfig(const v1::RunConfig& config) {
  v1::SamplingConfig ode = config.sampling();
  if (config.eval().steps() > 0) ode.set_steps(config.eval().steps());
  ode.set_dynamics(v1::DYNAMICS_KIND_ODE);
  ode.set_solver(config.eval().solver());
  return SamplingSpecFromConfig(ode);
}

}  // namespace oxbow::run
