// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/chosen_method.h"
#include "config/rules.h"
#include "config/validate.h"

namespace oxbow::config {

namespace {

using v1::RunConfig;

constexpr char kSplits[] = "sampling.split_steps";

// The stochastic steps of a window that does not move, rising.
std::vector<uint32_t> StochasticSteps(const v1::SamplingConfig& s) {
  const v1::WindowConfig& window = s.window();
  if (window.kind() == v1::WINDOW_KIND_FIXED) {
    return {window.steps().begin(), window.steps().end()};
  }
  std::vector<uint32_t> steps;
  const uint64_t end =
      std::min<uint64_t>(uint64_t{s.sde_first()} + s.sde_count(), std::max(1u, s.steps()) - 1);
  for (uint64_t i = s.sde_first(); i < end; ++i) steps.push_back(static_cast<uint32_t>(i));
  return steps;
}

bool RisesWithin(const std::vector<uint32_t>& some, const std::vector<uint32_t>& all) {
  return std::adjacent_find(some.begin(), some.end(), std::greater_equal<>()) == some.end() &&
         std::includes(all.begin(), all.end(), some.begin(), some.end());
}

// Trees of a group; 0: its samples are no row of whole trees.
uint64_t GroupTrees(const RunConfig& c) {
  const v1::SamplingConfig& s = c.sampling();
  uint64_t leaves = 1;
  for (int i = 0; i < s.split_steps_size() && leaves <= c.batch().group_size(); ++i) {
    leaves *= s.split_width();
  }
  return leaves == 0 || c.batch().group_size() % leaves != 0 ? 0 : c.batch().group_size() / leaves;
}

// Where groups are trees.
void TreeShapeRules(const RunConfig& c, Findings& f) {
  const v1::SamplingConfig& s = c.sampling();
  if (WindowMoves(s)) {
    f.Error(kSplits,
            "needs the same stochastic steps in every learner step: set sampling.window.kind to "
            "all or fixed");
    return;
  }
  const std::vector<uint32_t> stochastic = StochasticSteps(s);
  if (!RisesWithin({s.split_steps().begin(), s.split_steps().end()}, stochastic)) {
    f.Error(kSplits, absl::StrCat("must list rising steps of the stochastic ones, which are ",
                                  absl::StrJoin(stochastic, ", "), "; got ",
                                  absl::StrJoin(s.split_steps(), ", ")));
    return;
  }
  f.ErrorIf(
      s.split_width() >= 2 && GroupTrees(c) == 0, "batch.group_size",
      absl::StrCat("must be a multiple of sampling.split_width to the power of the number of "
                   "splits, ",
                   s.split_width(), "^", s.split_steps_size(), ", got ", c.batch().group_size()));
}

// Settings that know nothing of rows that several samples share.
void SharedRowRules(const RunConfig& c, Findings& f) {
  const rl::MethodFacts& method = ChosenMethod(c.method());
  if (!method.needs_density()) {
    f.Error(kSplits, absl::StrCat(method.name,
                                  " trains final images, which trees do not share: choose grpo, "
                                  "guard or dppo, or list no splits"));
    return;
  }
  f.ErrorIf(method.whole_samples, kSplits,
            absl::StrCat(method.name,
                         " has one ratio for all steps of a sample, and trees share steps between "
                         "samples: choose grpo, guard or dppo"));
  f.ErrorIf(KeepsSuccesses(c), kSplits,
            "does not go with replay, whose heads are in no tree: set replay.fraction and "
            "replay.added to 0 and replay.late_binding to false");
  f.ErrorIf(c.adaptation().enabled(), kSplits,
            "does not go with adaptation, which trains groups again: set adaptation.enabled to "
            "false");
  f.ErrorIf(c.off_policy().staleness_max() > 0, kSplits,
            absl::StrCat("needs groups of the present weights, because W is of a whole sample: "
                         "set off_policy.staleness_max to 0, got ",
                         c.off_policy().staleness_max()));
  f.ErrorIf(c.method().step_fraction() < 1, "method.step_fraction",
            absl::StrCat("draws steps of each sample, and trees share them: set 1, and prune steps "
                         "with method.branch.pruned_steps, got ",
                         c.method().step_fraction()));
  f.ErrorIf(c.method().kl_weight() > 0 && !c.method().kl_all_steps(), "method.kl_all_steps",
            "must be true with sampling.split_steps: one step of each sample would count shared "
            "steps too rarely");
}

void PruningRules(const RunConfig& c, Findings& f) {
  const v1::BranchConfig& branch = c.method().branch();
  const std::vector<uint32_t> stochastic = StochasticSteps(c.sampling());
  const std::vector<uint32_t> pruned(branch.pruned_steps().begin(), branch.pruned_steps().end());
  if (!RisesWithin(pruned, stochastic) || pruned.size() >= stochastic.size()) {
    f.Error("method.branch.pruned_steps",
            absl::StrCat("must list rising steps of the stochastic ones, and leave one to train: ",
                         absl::StrJoin(stochastic, ", "), "; got ", absl::StrJoin(pruned, ", ")));
    return;
  }
  if (GroupTrees(c) != 1) return;
  std::vector<uint32_t> divided;
  std::copy_if(stochastic.begin(), stochastic.end(), std::back_inserter(divided),
               [&](uint32_t step) { return step >= c.sampling().split_steps(0); });
  if (!std::includes(pruned.begin(), pruned.end(), divided.begin(), divided.end())) return;
  f.Error("method.branch.pruned_steps",
          absl::StrCat("must leave one to train of the steps at which a group, one tree, has more "
                       "than one node: ",
                       absl::StrJoin(divided, ", "), "; got ", absl::StrJoin(pruned, ", ")));
}

}  // namespace

void BranchGroupRules(const RunConfig& c, Findings& f) {
  const v1::SamplingConfig& s = c.sampling();
  const v1::BranchConfig& branch = c.method().branch();
  f.AtLeast(2, "sampling.split_width", s.split_width());
  f.Require(branch.kept() > 0 && branch.kept() <= 1, "method.branch.kept", "must be in (0, 1]",
            branch.kept());
  if (s.split_steps_size() == 0) {
    f.WarnIf(branch.pruning() > v1::BRANCH_PRUNING_NONE || branch.pruned_steps_size() > 0,
             "method.branch",
             "has no effect without trees: list their splits in "
             "sampling.split_steps");
    return;
  }
  if (s.dynamics() == v1::DYNAMICS_KIND_ODE) {
    f.Error(kSplits,
            "needs noise at the splits: choose stochastic sampling.dynamics, or list no splits");
    return;
  }
  TreeShapeRules(c, f);
  SharedRowRules(c, f);
  if (branch.pruned_steps_size() > 0 && !WindowMoves(s)) PruningRules(c, f);
}

Reach ReachOf(const v1::SamplingConfig& s) {
  const v1::WindowConfig& w = s.window();
  if (w.kind() == v1::WINDOW_KIND_FIXED && w.steps_size() > 0) {
    return {w.steps(0), uint64_t{w.steps(w.steps_size() - 1)} + 1};
  }
  return {s.sde_first(), uint64_t{s.sde_first()} + s.sde_count()};
}

bool WindowMoves(const v1::SamplingConfig& s) {
  return s.window().kind() != v1::WINDOW_KIND_ALL && s.window().kind() != v1::WINDOW_KIND_FIXED;
}

void WindowRules(const v1::SamplingConfig& s, Findings& f) {
  const v1::WindowConfig& w = s.window();
  const uint64_t end = uint64_t{s.sde_first()} + s.sde_count();
  if (w.kind() == v1::WINDOW_KIND_FIXED) {
    bool right = w.steps_size() > 0;
    for (int i = 0; i < w.steps_size(); ++i) {
      right = right && w.steps(i) >= s.sde_first() && w.steps(i) < end &&
              (i == 0 || w.steps(i) > w.steps(i - 1));
    }
    f.ErrorIf(!right, "sampling.window.steps",
              absl::StrCat("must list rising steps of those that sde_first and sde_count allow, ",
                           s.sde_first(), " to ", end - 1, ", got ", w.steps_size(), " steps"));
    return;
  }
  f.WarnIf(w.steps_size() > 0, "sampling.window.steps",
           "has no effect unless sampling.window.kind is fixed");
  if (!WindowMoves(s)) return;
  f.ErrorIf(w.size() < 1 || w.size() > s.sde_count(), "sampling.window.size",
            absl::StrCat("must be 1 to sampling.sde_count = ", s.sde_count(), ", got ", w.size()));
  f.AtLeast(1, "sampling.window.stride", w.stride());
}

void CompressionRules(const v1::RunConfig& c, Findings& f) {
  constexpr char kShare[] = "sampling.compression.share";
  const v1::SamplingConfig& s = c.sampling();
  const v1::CompressionConfig& compression = s.compression();
  const double share = compression.share();
  f.Require(share > 0 && share <= 1, kShare, "must be in (0, 1]", share);
  f.WarnIf(compression.carry() && share == 1, "sampling.compression.carry",
           "has no effect without compressed steps");
  if (!(share > 0 && share < 1)) return;
  if (s.dynamics() == v1::DYNAMICS_KIND_ODE) {
    f.Error(kShare, absl::StrCat("leaves out steps behind the last stochastic one, and ode has "
                                 "none: set 1, and sampling.steps and solver to take fewer, got ",
                                 share));
    return;
  }
  f.ErrorIf(s.shift_terminal() > 0, kShare,
            absl::StrCat("takes levels below the last of a stretched grid: set 1, as "
                         "sampling.shift_terminal is ",
                         s.shift_terminal(), ", got ", share));
  f.ErrorIf(c.method().anchor().weight() > 0 && ChosenMethod(c.method()).needs_density(), kShare,
            absl::StrCat("leaves latents out that method.anchor.weight sends, those from "
                         "the window to the picture: set 1, or the anchor to 0, got ",
                         share));
  f.WarnIf(!WindowMoves(s) && ReachOf(s).end + 1 >= s.steps(), kShare,
           "has no effect: one step is left behind the last stochastic one; end the window before");
}

}  // namespace oxbow::config
