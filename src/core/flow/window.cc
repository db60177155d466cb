// SPDX-License-Identifier: Apache-2.0
#include "core/flow/window.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/philox.h"

namespace oxbow::flow {
namespace {

// Where holds of an exponential decay begin to shrink, and how fast (MixGRPO's code).
constexpr int kDecayFrom = 13;
constexpr double kDecayRate = 0.1;

std::vector<int> Range(int begin, int end) {
  std::vector<int> steps(static_cast<size_t>(std::max(0, end - begin)));
  std::iota(steps.begin(), steps.end(), begin);
  return steps;
}

// The position of a sliding window, and the number of learner steps that it stays there.
struct Position {
  int first = 0;
  uint64_t hold = 1;
};

uint64_t HoldAt(const WindowPlan& plan, int first) {
  if (plan.kind == WindowKind::kDecay) {
    const double progress = static_cast<double>(first) / plan.end;
    const int least = std::max(1, plan.hold / 4);
    const double hold = plan.hold * (1 - progress) + least * progress;
    return static_cast<uint64_t>(std::max(least, static_cast<int>(hold)));
  }
  if (plan.kind == WindowKind::kExpDecay) {
    const int past = std::max(0, first - kDecayFrom);
    return static_cast<uint64_t>(std::ceil(plan.hold * std::exp(-kDecayRate * past)));
  }
  return static_cast<uint64_t>(plan.hold);
}

// The positions of one pass.
std::vector<Position> Pass(const WindowPlan& plan) {
  std::vector<Position> positions;
  for (int first = plan.begin; first < plan.end; first += plan.stride) {
    positions.push_back({first, HoldAt(plan, first)});
  }
  return positions;
}

std::vector<int> WindowFrom(const WindowPlan& plan, int first) {
  return Range(first, std::min(first + plan.size, plan.end));
}

std::vector<int> SlidingWindow(const WindowPlan& plan, uint64_t step) {
  const std::vector<Position> positions = Pass(plan);
  uint64_t length = 0;
  for (const Position& position : positions) length += position.hold;
  step %= length;
  for (const Position& position : positions) {
    if (step < position.hold) return WindowFrom(plan, position.first);
    step -= position.hold;
  }
  return WindowFrom(plan, positions.back().first);
}

// Fisher-Yates, stopped after `size` picks.
std::vector<int> Subset(const WindowPlan& plan, RandomStream stream) {
  std::vector<int> steps = Range(plan.begin, plan.end);
  for (size_t i = 0; i < static_cast<size_t>(plan.size); ++i) {
    std::swap(steps[i], steps[i + stream.NextBelow(steps.size() - i)]);
  }
  steps.resize(static_cast<size_t>(plan.size));
  std::sort(steps.begin(), steps.end());
  return steps;
}

void Check(const WindowPlan& plan) {
  OXBOW_CHECK(plan.begin >= 0 && plan.begin < plan.end) << "window within no steps: " << plan.end;
  if (plan.kind == WindowKind::kAll) return;
  if (plan.kind == WindowKind::kFixed) {
    OXBOW_CHECK(!plan.steps.empty() && std::is_sorted(plan.steps.begin(), plan.steps.end()) &&
                plan.steps.front() >= plan.begin && plan.steps.back() < plan.end)
        << "fixed window of " << plan.steps.size() << " steps";
    return;
  }
  OXBOW_CHECK(plan.size >= 1 && plan.size <= plan.end - plan.begin && plan.stride >= 1 &&
              plan.hold >= 1)
      << "window of " << plan.size << ", stride " << plan.stride << ", hold " << plan.hold;
}

bool Slides(WindowKind kind) {
  return kind == WindowKind::kProgressive || kind == WindowKind::kDecay ||
         kind == WindowKind::kExpDecay;
}

}  // namespace

std::vector<int> WindowAt(const WindowPlan& plan, uint64_t run_seed, uint64_t step) {
  Check(plan);
  if (plan.kind == WindowKind::kAll) return Range(plan.begin, plan.end);
  if (plan.kind == WindowKind::kFixed) return plan.steps;
  if (Slides(plan.kind)) return SlidingWindow(plan, step);
  const uint64_t draw = step / static_cast<uint64_t>(plan.hold);
  RandomStream stream({.seed = run_seed, .group = draw, .step = kWindow});
  if (plan.kind == WindowKind::kSubset) return Subset(plan, stream);
  const int places = plan.end - plan.begin - plan.size + 1;
  const auto place = static_cast<int>(stream.NextBelow(static_cast<uint64_t>(places)));
  return WindowFrom(plan, plan.begin + place);
}

std::vector<int> ReachableSteps(const WindowPlan& plan) {
  Check(plan);
  if (plan.kind == WindowKind::kFixed) return plan.steps;
  if (!Slides(plan.kind)) return Range(plan.begin, plan.end);
  std::vector<bool> reached(static_cast<size_t>(plan.end), false);
  for (const Position& position : Pass(plan)) {
    for (const int step : WindowFrom(plan, position.first))
      reached[static_cast<size_t>(step)] = true;
  }
  std::vector<int> steps = Range(plan.begin, plan.end);
  std::erase_if(steps, [&](int step) { return !reached[static_cast<size_t>(step)]; });
  return steps;
}

int LongestSpan(const WindowPlan& plan) {
  Check(plan);
  if (plan.kind == WindowKind::kFixed) return plan.steps.back() - plan.steps.front() + 1;
  const bool whole =
      plan.kind == WindowKind::kAll || (plan.kind == WindowKind::kSubset && plan.size > 1);
  return whole ? plan.end - plan.begin : plan.size;
}

std::vector<bool> StepFlags(const std::vector<int>& steps, int count) {
  std::vector<bool> flags(static_cast<size_t>(count), false);
  for (const int step : steps) {
    OXBOW_CHECK(step >= 0 && step < count) << "step " << step << " of " << count;
    flags[static_cast<size_t>(step)] = true;
  }
  return flags;
}

std::string Describe(const WindowPlan& plan) {
  const std::string range = absl::StrCat(plan.begin, "-", plan.end - 1);
  const std::string part = absl::StrCat(plan.size, " of ", range);
  switch (plan.kind) {
    case WindowKind::kAll:
      return range;
    case WindowKind::kFixed:
      return absl::StrJoin(plan.steps, ", ");
    case WindowKind::kRandom:
      return absl::StrCat(part, ", neighbours, drawn every ", plan.hold, " learner steps");
    case WindowKind::kSubset:
      return absl::StrCat(part, ", any, drawn every ", plan.hold, " learner steps");
    default:
      return absl::StrCat(part, ", on by ", plan.stride, " after ", plan.hold,
                          plan.kind == WindowKind::kProgressive ? "" : " or fewer",
                          " learner steps");
  }
}

LatentSpan SpanOf(const std::vector<bool>& sde) {
  const auto first = std::find(sde.begin(), sde.end(), true);
  if (first == sde.end()) return {};
  const auto last = std::find(sde.rbegin(), sde.rend(), true);
  const int begin = static_cast<int>(first - sde.begin());
  const int end = static_cast<int>(sde.rend() - last);  // One past the last stochastic step.
  return {.first = begin, .count = end - begin + 1};
}

LatentSpan SentSpan(SentLatents sent, const std::vector<bool>& sde) {
  const int steps = static_cast<int>(sde.size());
  if (sent == SentLatents::kFinal) return {.first = steps, .count = 1};
  LatentSpan span = SpanOf(sde);
  if (sent == SentLatents::kTransitions) return span;
  if (span.count == 0) span.first = steps;
  span.count = steps + 1 - span.first;
  return span;
}

}  // namespace oxbow::flow
