// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "config/chosen_method.h"
#include "config/rules.h"
#include "config/validate.h"
#include "config/yaml_message.h"

namespace oxbow::config {
namespace {

using v1::RunConfig;

std::string DynamicsOf(const RunConfig& c) {
  return EnumText(*v1::DynamicsKind_descriptor()->FindValueByNumber(c.sampling().dynamics()));
}

// The range on one side of ratio 1.
void SideRules(const v1::MethodConfig& m, const char* key, double clip, Findings& f) {
  const rl::ClipLimits& limits = ChosenMethod(m).clip;
  if (limits.max == 0) return;
  const bool inside = clip > 0 && clip >= limits.min && clip <= limits.max;
  f.Require(inside, key, limits.rule, clip);
  if (inside && limits.usual_max > 0 && clip > limits.usual_max) {
    f.Warn(key, absl::StrCat(limits.unusual, ", got ", clip));
  }
}

void ClipRules(const v1::MethodConfig& m, Findings& f) {
  SideRules(m, "method.clip_range", m.clip_range(), f);
  if (m.clip_range_high() == 0) return;
  const rl::MethodFacts& method = ChosenMethod(m);
  if (method.ratio != rl::RatioUse::kClipped) {
    f.Error("method.clip_range_high",
            absl::StrCat(method.name, " clips no ratio: set 0, got ", m.clip_range_high()));
    return;
  }
  SideRules(m, "method.clip_range_high", m.clip_range_high(), f);
}

void AdvantageRules(const RunConfig& c, Findings& f) {
  const v1::MethodConfig& m = c.method();
  f.AboveZero("method.advantage_clip", m.advantage_clip());
  f.Require(m.advantage_ddof() <= 1, "method.advantage_ddof", "must be 0 or 1", m.advantage_ddof());
  f.Require(m.advantage_epsilon() > 0, "method.advantage_epsilon",
            "must be above 0: it keeps small spreads from being blown up", m.advantage_epsilon());
  f.WarnIf(m.reward_mix() == v1::REWARD_MIX_EACH && c.reward().terms_size() == 1,
           "method.reward_mix", "has no effect with one reward; choose sum, or add reward.terms");
}

void WeightRules(const v1::MethodConfig& m, Findings& f) {
  f.AboveZero("method.weight_cap", m.weight_cap());
}

// The pull towards the policy before the step, which the first update has not left.
void PrecedentRules(const RunConfig& c, Findings& f) {
  const double share = c.method().kl_precedent();
  f.Require(share >= 0 && share <= 1, "method.kl_precedent",
            "must be in [0, 1]: it is a share of method.kl_weight", share);
  if (!(share > 0 && share <= 1)) return;
  if (c.method().kl_weight() == 0) {
    f.Warn("method.kl_precedent", "has no effect while method.kl_weight is 0");
  } else if (UpdatesPerStep(c) <= 1) {
    f.Warn("method.kl_precedent",
           "pulls at no update: a step's first one starts from the policy before the step; raise "
           "batch.updates, batch.passes or replay.passes");
  }
}

void VGrpoRules(const v1::MethodConfig& m, Findings& f) {
  if (KindOf(m) != rl::MethodKind::kVGrpo) return;
  f.WarnIf(m.v_grpo().weight() == v1::V_GRPO_WEIGHT_BOUND &&
               m.v_grpo().prediction() != v1::V_GRPO_PREDICTION_CLEAN,
           "method.v_grpo.prediction",
           "has no effect with method.v_grpo.weight: bound, which weighs every error so that all "
           "are the same");
}

// Its clip range of 1 clips nothing, so that a pull alone holds the policy.
void AwmRules(const v1::MethodConfig& m, Findings& f) {
  if (KindOf(m) != rl::MethodKind::kAwm) return;
  const bool held = m.kl_weight() > 0 || m.old_kl_weight() > 0 || m.anchor().weight() > 0;
  f.WarnIf(!held && (!m.awm().ratio() || m.clip_range() == 1), "method.old_kl_weight",
           "nothing holds the policy of awm: a clip range of 1 clips nothing; set "
           "method.old_kl_weight (published: 1), method.kl_weight or method.anchor.weight");
}

void KlRules(const v1::MethodConfig& m, Findings& f) {
  f.AtLeast(0, "method.kl_weight", m.kl_weight());
  f.AtLeast(0, "method.old_kl_weight", m.old_kl_weight());
  const bool of_steps =
      m.kl_space() == v1::KL_SPACE_TRANSITION || m.kl_space() == v1::KL_SPACE_LATENT;
  f.ErrorIf(of_steps && !ChosenMethod(m).needs_density(), "method.kl_space",
            absl::StrCat("transition and latent are of stochastic steps, which ",
                         ChosenMethod(m).name, " does not train: set velocity or mean"));
  f.WarnIf(m.reference_every() > 0 && m.kl_weight() == 0, "method.reference_every",
           "has no effect without a pull towards the reference: set method.kl_weight");
}

void MeanComparisonRules(const RunConfig& c, Findings& f) {
  const v1::MethodConfig& m = c.method();
  const rl::MethodFacts& method = ChosenMethod(m);
  if (!method.compares_means) return;
  const v1::DynamicsKind dynamics = c.sampling().dynamics();
  f.ErrorIf(dynamics != v1::DYNAMICS_KIND_FLOW_SDE && dynamics != v1::DYNAMICS_KIND_DANCE_SDE &&
                dynamics != v1::DYNAMICS_KIND_WAN_SDE && dynamics != v1::DYNAMICS_KIND_ODE,
            "method.name",
            absl::StrCat(method.name,
                         " takes steps of std sqrt(-dt): set sampling.dynamics to "
                         "flow_sde, dance_sde or wan_sde, got ",
                         DynamicsOf(c)));
  f.ErrorIf(m.correction() != v1::CORRECTION_SEQUENCE && m.correction() != v1::CORRECTION_NONE,
            "method.correction",
            absl::StrCat(method.name,
                         " compares with the policy before the update: choose sequence or none"));
}

void KeptRules(const RunConfig& c, Findings& f) {
  const v1::MethodConfig& m = c.method();
  f.Require(m.kept_steps() > 0 || m.kept_kc_max() > 0, "method.kept_kc_max",
            "must be above 0 when method.kept_steps is 0", m.kept_kc_max());
  const Reach reach = ReachOf(c.sampling());
  if (m.kept_steps() > 0 && (m.kept_steps() > reach.end || m.kept_steps() <= reach.first)) {
    f.Error("method.kept_steps",
            absl::StrCat("a replayed head must end inside the stochastic window: from ",
                         reach.first + 1, " to ", reach.end, ", or 0 to derive it, got ",
                         m.kept_steps()));
    return;
  }
  const bool off_policy = KeepsSuccesses(c) || c.off_policy().staleness_max() > 0;
  f.WarnIf(off_policy && WindowMoves(c.sampling()) && m.kept_steps() > 0 &&
               m.kept_steps() + c.sampling().window().size() <= reach.end,
           "method.kept_steps",
           absl::StrCat("windows that begin at step ", m.kept_steps(),
                        " or later give the replay buffer nothing, and samples of older weights "
                        "nothing to train; end them there: sde_first + sde_count = ",
                        m.kept_steps()));
}

void TimesRules(const RunConfig& c, Findings& f) {
  const v1::TimesConfig& t = c.method().times();
  f.Require(t.fraction() > 0 && t.fraction() <= 1, "method.times.fraction", "must be in (0, 1]",
            t.fraction());
  f.Require(t.low() >= 0 && t.low() < t.high() && t.high() <= 1, "method.times.low",
            "must be at least 0 and below method.times.high, which is at most 1", t.low());
  f.AboveZero("method.times.shift", t.shift());
  f.ErrorIf(t.sampler() == v1::TIME_SAMPLER_GRID && t.count() > c.sampling().steps(),
            "method.times.count",
            absl::StrCat("a grid has no more levels than sampling.steps = ", c.sampling().steps(),
                         "; choose another sampler, got ", t.count()));
  const rl::MethodFacts& method = ChosenMethod(c.method());
  f.WarnIf(method.compares_images &&
               (t.times() == v1::SHARING_SAMPLE || t.noise() == v1::SHARING_SAMPLE),
           "method.times.noise",
           absl::StrCat(method.name,
                        " compares images of a group: set method.times.times and noise to group, "
                        "or the draws' own spread covers the difference"));
}

void OldPolicyRules(const v1::MethodConfig& m, Findings& f) {
  const v1::OldPolicyConfig& o = m.old_policy();
  const auto fraction = [](double d) { return d >= 0 && d < 1; };
  f.Require(fraction(o.decay()), "method.old_policy.decay", "must be in [0, 1)", o.decay());
  f.AtLeast(0, "method.old_policy.rate", o.rate());
}

void DiversityRules(const RunConfig& c, Findings& f) {
  const v1::DiversityConfig& d = c.method().diversity();
  f.AtLeast(0, "method.diversity.weight", d.weight());
  f.Require(d.radius() > 0 && d.radius() <= 1, "method.diversity.radius",
            "must be in (0, 1], where 1 is black against white", d.radius());
  f.ErrorIf(d.weight() > 0 && c.method().reward_mix() != v1::REWARD_MIX_SUM,
            "method.diversity.weight",
            absl::StrCat("raises the sum of the rewards: set method.reward_mix to sum, got ",
                         d.weight()));
}

void AnchorRules(const RunConfig& c, Findings& f) {
  const v1::AnchorConfig& a = c.method().anchor();
  f.AtLeast(0, "method.anchor.weight", a.weight());
  f.Require(a.high() > rl::kAnchorLow && a.high() <= 1, "method.anchor.high",
            "must be above 0.02, the pull's lowest noise level, and at most 1", a.high());
  f.ErrorIf(a.weight() > 0 && ChosenMethod(c.method()).needs_density() &&
                c.replay().fraction() > 0 && c.sampling().tail() == v1::TAIL_KIND_STORED,
            "method.anchor.weight",
            absl::StrCat("needs final images, which a replayed trajectory with sampling.tail: "
                         "stored does not have: set sampling.tail to ode, got ",
                         a.weight()));
}

void SampleFromRules(const v1::MethodConfig& m, Findings& f) {
  const rl::MethodFacts& method = ChosenMethod(m);
  constexpr char kKey[] = "method.sample_from";
  f.ErrorIf(m.sample_from() == v1::SAMPLE_FROM_OLD && method.old_copy == rl::OldCopy::kNever, kKey,
            absl::StrCat("must be auto or current: ", method.name, " keeps no running old policy"));
  f.ErrorIf(
      m.sample_from() == v1::SAMPLE_FROM_CURRENT && method.old_copy == rl::OldCopy::kSamples, kKey,
      absl::StrCat("must be auto or old: ", method.name,
                   " takes samples for draws of its old policy; to let that be the policy "
                   "before the step, set method.old_policy.shape to constant and decay to 0"));
}

// The pull towards the old policy.
void OldPullRules(const v1::MethodConfig& m, Findings& f) {
  const rl::MethodFacts& method = ChosenMethod(m);
  if (m.old_kl_weight() <= 0 || method.pulls_to_old) return;
  const std::string pulling =
      MethodsThat([](const rl::MethodFacts& other) { return other.pulls_to_old; }, " and ");
  if (method.old_copy == rl::OldCopy::kSamples) {
    f.Error("method.old_kl_weight",
            absl::StrCat("belongs to ", pulling, ": ", method.name,
                         "'s old policy is part of its loss, got ", m.old_kl_weight()));
    return;
  }
  f.Error("method.old_kl_weight",
          absl::StrCat("belongs to ", pulling, "; pull ", method.name,
                       " towards the reference with method.kl_weight, got ", m.old_kl_weight()));
}

}  // namespace

void MethodRules(const RunConfig& c, Findings& f) {
  DiversityRules(c, f);
  AnchorRules(c, f);
  ClipRules(c.method(), f);
  AdvantageRules(c, f);
  WeightRules(c.method(), f);
  KlRules(c.method(), f);
  PrecedentRules(c, f);
  VGrpoRules(c.method(), f);
  AwmRules(c.method(), f);
  f.Require(c.method().step_fraction() > 0 && c.method().step_fraction() <= 1,
            "method.step_fraction", "must be in (0, 1]", c.method().step_fraction());
  MeanComparisonRules(c, f);
  if (ChosenMethod(c.method()).needs_density()) KeptRules(c, f);
}

void ForwardProcessRules(const RunConfig& c, Findings& f) {
  const v1::MethodConfig& m = c.method();
  const rl::MethodFacts& method = ChosenMethod(m);
  if (!method.needs_density()) {
    const bool old_samples =
        method.old_copy == rl::OldCopy::kSamples || m.sample_from() == v1::SAMPLE_FROM_OLD;
    f.WarnIf(old_samples && KeepsSuccesses(c), "replay.fraction",
             absl::StrCat(method.name,
                          " takes images for draws of its old policy; replayed ones are of older "
                          "policies"));
    f.ErrorIf(m.step_fraction() < 1 || m.step_weight() != v1::STEP_WEIGHT_NONE,
              "method.step_weight",
              absl::StrCat(method.name,
                           " trains no denoising steps: set step_weight to none and "
                           "step_fraction to 1, and choose times with method.times"));
    f.WarnIf(m.old_log_prob() == v1::OLD_LOG_PROB_RECOMPUTE, "method.old_log_prob",
             absl::StrCat("has no effect: ", method.name, " compares with no worker's log-prob"));
    f.WarnIf(m.correction() != v1::CORRECTION_SEQUENCE, "method.correction",
             absl::StrCat("has no effect: ", method.name, " has no density to correct"));
  }
  SampleFromRules(m, f);
  OldPullRules(m, f);
  if (!method.needs_density()) {
    TimesRules(c, f);
    OldPolicyRules(m, f);
  }
  f.AboveZero("method.nft.beta", m.nft().beta());
}

}  // namespace oxbow::config
