// SPDX-License-Identifier: Apache-2.0
// The denoising steps that are stochastic, and therefore trained, in each learner step.
//
// Steps outside the window are plain ODE steps: no density, no gradient, no latents to keep. A
// window is a pure function of its settings, the run's seed and the learner step. It travels with
// each group as data. Workers therefore need no state, a resumed run repeats it, and a group that
// was planned early keeps its window.
//
//   all          every step of [begin, end)
//   fixed        a list
//   random       `size` consecutive steps, drawn uniformly: Flow-GRPO-Fast (flow_grpo),
//                MixGRPO `random`
//   subset       any `size` steps, drawn uniformly (Flow-Factory)
//   progressive  slides from the noisy end: MixGRPO, arXiv:2507.21802. At position c it is
//                [c, min(c + size, end)); after `hold` learner steps c grows by `stride`
//   decay        progressive, and hold falls linearly to a quarter as c goes to `end`
//   exp_decay    progressive, hold = ceil(hold exp(-.1 max(0, c - 13)))
//
// A sliding window returns to its first position after the last one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace oxbow::flow {

enum class WindowKind { kAll, kFixed, kRandom, kSubset, kProgressive, kDecay, kExpDecay };

struct WindowPlan {
  WindowKind kind = WindowKind::kAll;
  int begin = 0;  // Steps that may be stochastic: [begin, end).
  int end = 0;
  std::vector<int> steps;  // kFixed: ascending.
  int size = 1;
  int stride = 1;
  int hold = 1;  // Learner steps.
};

// Stochastic steps of learner step `step`, ascending. Requires 0 <= begin < end, sizes and holds of
// at least 1, size <= end - begin, and fixed steps inside [begin, end).
std::vector<int> WindowAt(const WindowPlan& plan, uint64_t run_seed, uint64_t step);

// Every step that some learner step takes stochastically, ascending.
std::vector<int> ReachableSteps(const WindowPlan& plan);

// Largest number of consecutive transitions that a window covers, including gaps inside it.
int LongestSpan(const WindowPlan& plan);

// `count` flags, true at `steps`.
std::vector<bool> StepFlags(const std::vector<int>& steps, int count);

// "0-3 of 0-8, on by 1 after 25 steps": a description for people.
std::string Describe(const WindowPlan& plan);

// The latents x_first .. x_{first + count - 1} that trained transitions need: from the first
// stochastic step to the successor of the last. Empty without stochastic steps.
struct LatentSpan {
  int first = 0;
  int count = 0;

  int end() const { return first + count; }
};
LatentSpan SpanOf(const std::vector<bool>& sde);

// The latents of a fresh trajectory that travel to the learner.
enum class SentLatents {
  kTransitions,  // The latents that trained transitions need.
  kToTheEnd,     // These, and all later latents up to the final one.
  kFinal,        // The final one alone.
};
LatentSpan SentSpan(SentLatents sent, const std::vector<bool>& sde);

}  // namespace oxbow::flow
