#include "run/window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace oxbow::run {
namespace {

constexpr int kHoldOfSlidingWindows = 25;  // As in MixGRPO, arXiv:2507.21802.

absl::StatusOr<flow::WindowKind> KindOf(v1::WindowKind kind) {
  switch (kind) {
    case v1::WINDOW_KIND_ALL:
      return flow::WindowKind::kAll;
    case v1::WINDOW_KIND_FIXED:
      return flow::WindowKind::kFixed;
    case v1::WINDOW_KIND_RANDOM:
      return flow::WindowKind::kRandom;
    case v1::WINDOW_KIND_SUBSET:
      return flow::WindowKind::kSubset;
    case v1::WINDOW_KIND_PROGRESSIVE:
      return flow::WindowKind::kProgressive;
    case v1::WINDOW_KIND_DECAY:
      return flow::WindowKind::kDecay;
    case v1::WINDOW_KIND_EXP_DECAY:
      return flow::WindowKind::kExpDecay;
    default:
      return absl::InvalidArgumentError("sampling.window.kind is not set");
  }
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

}  // namespace

absl::StatusOr<flow::WindowPlan> WindowFromConfig(const v1::SamplingConfig& config) {
  const v1::WindowConfig& window = config.window();
  const absl::StatusOr<flow::WindowKind> kind = KindOf(window.kind());
  if (!kind.ok()) return kind.status();
  const uint64_t end = std::min(uint64_t{config.sde_first()} + config.sde_count(),
                                std::max(uint64_t{config.steps()}, uint64_t{1}) - 1);
  flow::WindowPlan plan{.kind = *kind,
                        .begin = static_cast<int>(config.sde_first()),
                        .end = static_cast<int>(end),
                        .steps = {window.steps().begin(), window.steps().end()},
                        .size = static_cast<int>(window.size()),
                        .stride = static_cast<int>(window.stride()),
                        .hold = static_cast<int>(window.hold()),
                        .hold_min = static_cast<int>(window.hold_min()),
                        .decay_rate = window.decay_rate(),
                        .decay_from = static_cast<int>(window.decay_from()),
                        .wrap = window.wrap()};
  if (plan.begin >= plan.end) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.sde_first and sde_count leave no step before the last of ",
                     config.steps(), ": ", config.sde_first(), ", ", config.sde_count()));
  }
  if (plan.kind == flow::WindowKind::kAll) return plan;
  if (plan.kind == flow::WindowKind::kFixed) {
    if (const absl::Status fits = CheckFixed(plan); !fits.ok()) return fits;
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
  if (plan.hold_min == 0) plan.hold_min = std::max(1, plan.hold / 4);
  return plan;
}

}  // namespace oxbow::run
