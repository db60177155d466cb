// SPDX-License-Identifier: Apache-2.0
#include "run/kept_steps.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "config/chosen_method.h"
#include "config/rules.h"
#include "core/flow/sampler.h"

namespace oxbow::run {
namespace {

// Whether a step may train samples that older weights made, which a correction cuts at i_off.
bool TrainsStaleSamples(const v1::RunConfig& config) {
  if (config.adaptation().enabled() && config.adaptation().recent_steps() > 0) return true;
  return config.off_policy().staleness_max() > 0 &&
         config.method().correction() != v1::CORRECTION_BYPASS;
}

// Stochastic steps before `end`.
int64_t StochasticBefore(const flow::SamplingSpec& sampling, int end) {
  return std::count(sampling.sde.begin(), sampling.sde.begin() + end, true);
}

std::string WhatReuses(bool replays) {
  return replays ? "replayed heads would be empty" : "samples of older weights would train nothing";
}

}  // namespace

int KeptStepsOf(const v1::RunConfig& config, const flow::SamplingSpec& sampling) {
  // A method of final latents replays finished images.
  if (!config::ChosenMethod(config.method()).needs_density()) return sampling.steps();
  const int configured = static_cast<int>(config.method().kept_steps());
  return configured > 0 ? configured : flow::KeptSteps(sampling, config.method().kept_kc_max());
}

std::vector<config::Problem> CheckKeptSteps(const v1::RunConfig& config,
                                            const flow::SamplingSpec& sampling) {
  const bool replays = config::KeepsSuccesses(config);
  const bool stale = TrainsStaleSamples(config);
  if (!config::ChosenMethod(config.method()).needs_density() || !(replays || stale)) return {};
  const int64_t all = StochasticBefore(sampling, sampling.steps());
  if (all == 0) return {};  // Another rule reports it.
  const int kept = std::min(KeptStepsOf(config, sampling), sampling.steps());
  const int64_t left = StochasticBefore(sampling, kept);
  if (left == 0) {
    const auto first = std::find(sampling.sde.begin(), sampling.sde.end(), true);
    const auto step = static_cast<int>(first - sampling.sde.begin());
    const double kc = flow::KernelSensitivity(flow::KernelAt(sampling, step));
    return {{config::Severity::kError, "method.kept_kc_max",
             absl::StrCat("keeps no step (i_off = 0): the first stochastic step has kc ", kc,
                          ", so ", WhatReuses(replays), "; raise it above ", kc,
                          ", or set replay.fraction and off_policy.staleness_max to 0, got ",
                          config.method().kept_kc_max())}};
  }
  config::Findings f;
  if (stale && left < all) {
    f.Warn("method.kept_kc_max",
           absl::StrCat("samples of older weights train ", left, " of ", all,
                        " steps, those before i_off = ", kept,
                        "; to train all raise it, or set method.correction to bypass"));
  }
  if (replays && left < all && config.sampling().tail() == v1::TAIL_KIND_STORED &&
      !config::WindowMoves(config.sampling())) {
    f.Warn("sampling.tail",
           absl::StrCat("stored has no effect: heads end at i_off = ", kept,
                        ", before the last stochastic step, so their tails are made "
                        "again as by ode; end the window there"));
  }
  if (config.replay().fraction() > 0 && config.replay().branches() > 1 && left == all) {
    f.Error("replay.branches",
            absl::StrCat("would all be the same image: the stored head keeps every stochastic step "
                         "(i_off = ",
                         kept, "); set method.kept_steps below that, or 1, got ",
                         config.replay().branches()));
  }
  const uint64_t reach = config::ReachOf(config.sampling()).end;
  if (config.method().kept_steps() == 0 && config::WindowMoves(config.sampling()) &&
      static_cast<uint64_t>(kept) + config.sampling().window().size() <= reach) {
    f.Warn("method.kept_kc_max",
           absl::StrCat("windows that begin at step i_off = ", kept,
                        " or later give the replay buffer nothing, and samples of older weights "
                        "nothing to train; end them there: sde_first + sde_count = ",
                        kept));
  }
  return std::move(f.problems);
}

}  // namespace oxbow::run
