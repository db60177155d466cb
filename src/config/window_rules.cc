// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "config/chosen_method.h"
#include "config/rules.h"

namespace oxbow::config {

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
    if (!right) {
      f.Error("sampling.window.steps",
              absl::StrCat("must list rising steps of those that sde_first and sde_count allow, ",
                           s.sde_first(), " to ", end - 1, ", got ", w.steps_size(), " steps"));
    }
    return;
  }
  if (w.steps_size() > 0) {
    f.Warn("sampling.window.steps", "has no effect unless sampling.window.kind is fixed");
  }
  if (!WindowMoves(s)) return;
  if (w.size() < 1 || w.size() > s.sde_count()) {
    f.Error("sampling.window.size",
            absl::StrCat("must be 1 to sampling.sde_count = ", s.sde_count(), ", got ", w.size()));
  }
  f.Require(w.stride() >= 1, "sampling.window.stride", "must be at least 1", w.stride());
}

void CompressionRules(const v1::RunConfig& c, Findings& f) {
  constexpr char kShare[] = "sampling.compression.share";
  const v1::SamplingConfig& s = c.sampling();
  const v1::CompressionConfig& compression = s.compression();
  const double share = compression.share();
  f.Require(share > 0 && share <= 1, kShare, "must be in (0, 1]", share);
  if (compression.carry() && share == 1) {
    f.Warn("sampling.compression.carry", "has no effect without compressed steps");
  }
  if (!(share > 0 && share < 1)) return;
  if (s.dynamics() == v1::DYNAMICS_KIND_ODE) {
    f.Error(kShare, absl::StrCat("leaves out steps behind the last stochastic one, and ode has "
                                 "none: set 1, and sampling.steps and solver to take fewer, got ",
                                 share));
    return;
  }
  if (s.shift_terminal() > 0) {
    f.Error(kShare, absl::StrCat("takes levels below the last of a stretched grid: set 1, as "
                                 "sampling.shift_terminal is ",
                                 s.shift_terminal(), ", got ", share));
  }
  if (c.method().anchor().weight() > 0 && ChosenMethod(c.method()).needs_density()) {
    f.Error(kShare, absl::StrCat("leaves latents out that method.anchor.weight sends, those from "
                                 "the window to the picture: set 1, or the anchor to 0, got ",
                                 share));
  }
  if (!WindowMoves(s) && ReachOf(s).end + 1 >= s.steps()) {
    f.Warn(kShare,
           "has no effect: one step is left behind the last stochastic one; end the window before");
  }
}

}  // namespace oxbow::config
