#include "config/method_rules.h"

#include <algorithm>
#include <string>

#include "config/window_rules.h"
#include "config/yaml_message.h"

namespace oxbow::config {
namespace {

using v1::RunConfig;

// The range of clip_range: log-probs are means over elements, so ratios stay near 1.
constexpr double kClipWarning = 1e-2;
constexpr double kClipMax = 1e-1;
constexpr double kPictureClipMin = 1e-4;  // V-GRPO's ratios are of whole pictures, of order 1e-2.

std::string NameOf(const v1::MethodConfig& m) {
  return EnumText(*v1::MethodName_descriptor()->FindValueByNumber(m.name()));
}

std::string DynamicsOf(const RunConfig& c) {
  return EnumText(*v1::DynamicsKind_descriptor()->FindValueByNumber(c.sampling().dynamics()));
}

void DensityClipRules(const char* key, double clip, Findings& f) {
  if (clip <= 0 || clip > kClipMax) {
    f.Error(key, absl::StrCat("must be in (0, ", kClipMax,
                              "]: log-probs are means over elements, so "
                              "ratios differ from 1 by far less; 1e-4 to 1e-2 is usual, got ",
                              clip));
  } else if (clip > kClipWarning) {
    f.Warn(key, absl::StrCat("above ", kClipWarning,
                             " nothing is clipped, because log-probs are means "
                             "over elements; 1e-4 to 1e-2 is usual, got ",
                             clip));
  }
}

// The range on one side of ratio 1.
void SideRules(const v1::MethodConfig& m, const char* key, double clip, Findings& f) {
  switch (m.name()) {
    case v1::METHOD_NAME_NFT:
      return;  // Clips nothing.
    case v1::METHOD_NAME_AWM:
      f.Require(
          clip > 0 && clip <= 1, key,
          "must be in (0, 1] for awm, whose ratio is of a flow-matching loss; 1 clips nothing",
          clip);
      return;
    case v1::METHOD_NAME_V_GRPO:
      f.Require(clip >= kPictureClipMin && (clip <= 1 || m.v_grpo().sum_norms()), key,
                "must be in [1e-4, 1] for v_grpo, whose ratio is of a whole picture and not of a "
                "step; 6e-3 to 1e-2 is usual",
                clip);
      return;
    case v1::METHOD_NAME_DPPO:
      f.Require(
          clip > 0 && clip <= kClipMax, key,
          "must be in (0, 0.1] for dppo: it is the divergence of means over 2 S^2 from which a "
          "row is masked, not a range of ratios; 1e-5 is published",
          clip);
      return;
    default:
      DensityClipRules(key, clip, f);
  }
}

void ClipRules(const v1::MethodConfig& m, Findings& f) {
  SideRules(m, "method.clip_range", m.clip_range(), f);
  if (m.clip_range_high() == 0) return;
  if (m.name() == v1::METHOD_NAME_NFT || m.name() == v1::METHOD_NAME_DPPO) {
    f.Error("method.clip_range_high",
            absl::StrCat(NameOf(m), " clips no ratio: set 0, got ", m.clip_range_high()));
    return;
  }
  SideRules(m, "method.clip_range_high", m.clip_range_high(), f);
}

void AdvantageRules(const RunConfig& c, Findings& f) {
  const v1::MethodConfig& m = c.method();
  f.Require(m.advantage_clip() > 0, "method.advantage_clip", "must be above 0", m.advantage_clip());
  f.Require(m.advantage_ddof() <= 1, "method.advantage_ddof", "must be 0 or 1", m.advantage_ddof());
  f.Require(m.advantage_epsilon() > 0, "method.advantage_epsilon",
            "must be above 0: it keeps small spreads from being blown up", m.advantage_epsilon());
  if (m.reward_mix() == v1::REWARD_MIX_EACH && c.reward().terms_size() == 1) {
    f.Warn("method.reward_mix", "has no effect with one reward; choose sum, or add reward.terms");
  }
}

void WeightRules(const v1::MethodConfig& m, Findings& f) {
  f.Require(m.weight_cap() > 0, "method.weight_cap", "must be above 0", m.weight_cap());
  f.Require(m.weight_floor() >= 0 && m.weight_floor() < std::max(m.weight_cap(), 1e-300),
            "method.weight_floor", "must be at least 0 and below method.weight_cap",
            m.weight_floor());
  f.Require(m.weight_log_clamp() > 0, "method.weight_log_clamp", "must be above 0",
            m.weight_log_clamp());
}

void KlRules(const v1::MethodConfig& m, Findings& f) {
  f.Require(m.kl_weight() >= 0, "method.kl_weight", "must be at least 0", m.kl_weight());
  f.Require(m.old_kl_weight() >= 0, "method.old_kl_weight", "must be at least 0",
            m.old_kl_weight());
  if (m.reference_every() > 0 && m.kl_weight() == 0) {
    f.Warn("method.reference_every",
           "has no effect without a pull towards the reference: set method.kl_weight");
  }
}

// Both compare means of Gaussian steps with those of the policy before the update.
void MeanShiftRules(const RunConfig& c, Findings& f) {
  const v1::MethodConfig& m = c.method();
  if (m.name() != v1::METHOD_NAME_GUARD && m.name() != v1::METHOD_NAME_DPPO) return;
  const v1::DynamicsKind dynamics = c.sampling().dynamics();
  if (dynamics != v1::DYNAMICS_KIND_FLOW_SDE && dynamics != v1::DYNAMICS_KIND_DANCE_SDE &&
      dynamics != v1::DYNAMICS_KIND_WAN_SDE && dynamics != v1::DYNAMICS_KIND_ODE) {
    f.Error("method.name", absl::StrCat(NameOf(m),
                                        " takes steps of std sqrt(-dt): set sampling.dynamics to "
                                        "flow_sde, dance_sde or wan_sde, got ",
                                        DynamicsOf(c)));
  }
  if (m.correction() != v1::CORRECTION_SEQUENCE && m.correction() != v1::CORRECTION_NONE) {
    f.Error("method.correction",
            absl::StrCat(NameOf(m),
                         " compares with the policy before the update: choose sequence or none"));
  }
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
  const bool off_policy = c.replay().fraction() > 0 || c.off_policy().staleness_max() > 0;
  if (off_policy && WindowMoves(c.sampling()) && m.kept_steps() > 0 &&
      m.kept_steps() + c.sampling().window().size() <= reach.end) {
    f.Warn("method.kept_steps",
           absl::StrCat("windows that begin at step ", m.kept_steps(),
                        " or later give the replay buffer nothing, and samples of older weights "
                        "nothing to train; end them there: sde_first + sde_count = ",
                        m.kept_steps()));
  }
}

void TimesRules(const RunConfig& c, Findings& f) {
  const v1::TimesConfig& t = c.method().times();
  f.Require(t.fraction() > 0 && t.fraction() <= 1, "method.times.fraction", "must be in (0, 1]",
            t.fraction());
  f.Require(t.low() >= 0 && t.low() < t.high() && t.high() <= 1, "method.times.low",
            "must be at least 0 and below method.times.high, which is at most 1", t.low());
  f.Require(t.shift() > 0, "method.times.shift", "must be above 0", t.shift());
  if (t.sampler() == v1::TIME_SAMPLER_GRID && t.count() > c.sampling().steps()) {
    f.Error("method.times.count",
            absl::StrCat("a grid has no more levels than sampling.steps = ", c.sampling().steps(),
                         "; choose another sampler, got ", t.count()));
  }
  if (c.method().name() == v1::METHOD_NAME_V_GRPO &&
      (t.times() == v1::SHARING_SAMPLE || t.noise() == v1::SHARING_SAMPLE)) {
    f.Warn("method.times.noise",
           "v_grpo compares pictures of a group: set method.times.times and noise to group, or the "
           "draws' own spread covers the difference");
  }
}

void OldPolicyRules(const v1::MethodConfig& m, Findings& f) {
  const v1::OldPolicyConfig& o = m.old_policy();
  const auto fraction = [](double d) { return d >= 0 && d < 1; };
  f.Require(fraction(o.decay()), "method.old_policy.decay", "must be in [0, 1)", o.decay());
  f.Require(fraction(o.start()), "method.old_policy.start", "must be in [0, 1)", o.start());
  f.Require(o.rate() >= 0, "method.old_policy.rate", "must be at least 0", o.rate());
  f.Require(o.every() >= 1, "method.old_policy.every", "must be at least 1", o.every());
  f.Require(m.name() != v1::METHOD_NAME_NFT || m.nft().beta() > 0, "method.nft.beta",
            "must be above 0", m.nft().beta());
  f.Require(m.awm().power() > 0, "method.awm.power", "must be above 0", m.awm().power());
}

}  // namespace

bool NeedsDensity(const v1::MethodConfig& method) {
  return method.name() != v1::METHOD_NAME_NFT && method.name() != v1::METHOD_NAME_AWM &&
         method.name() != v1::METHOD_NAME_V_GRPO;
}

void DiversityRules(const RunConfig& c, Findings& f) {
  const v1::DiversityConfig& d = c.method().diversity();
  f.Require(d.weight() >= 0, "method.diversity.weight", "must be at least 0", d.weight());
  f.Require(d.radius() > 0 && d.radius() <= 1, "method.diversity.radius",
            "must be in (0, 1], where 1 is black against white", d.radius());
  if (d.weight() > 0 && c.method().reward_mix() != v1::REWARD_MIX_SUM) {
    f.Error("method.diversity.weight",
            absl::StrCat("raises the sum of the rewards: set method.reward_mix to sum, got ",
                         d.weight()));
  }
}

void AnchorRules(const v1::MethodConfig& m, Findings& f) {
  const v1::AnchorConfig& a = m.anchor();
  f.Require(a.weight() >= 0, "method.anchor.weight", "must be at least 0", a.weight());
  f.Require(a.low() > 0 && a.low() < a.high() && a.high() <= 1, "method.anchor.low",
            "must be above 0 and below method.anchor.high, which is at most 1", a.low());
  if (a.weight() > 0 && NeedsDensity(m)) {
    f.Error(
        "method.anchor.weight",
        absl::StrCat("needs final pictures, which only nft, awm and v_grpo train on; pull ",
                     NameOf(m), " towards the reference with method.kl_weight, got ", a.weight()));
  }
}

void MethodRules(const RunConfig& c, Findings& f) {
  DiversityRules(c, f);
  AnchorRules(c.method(), f);
  ClipRules(c.method(), f);
  AdvantageRules(c, f);
  WeightRules(c.method(), f);
  KlRules(c.method(), f);
  f.Require(c.method().step_fraction() > 0 && c.method().step_fraction() <= 1,
            "method.step_fraction", "must be in (0, 1]", c.method().step_fraction());
  MeanShiftRules(c, f);
  if (NeedsDensity(c.method())) KeptRules(c, f);
}

void ForwardProcessRules(const RunConfig& c, Findings& f) {
  const v1::MethodConfig& m = c.method();
  if (NeedsDensity(m)) {
    if (m.old_kl_weight() > 0) {
      f.Error(
          "method.old_kl_weight",
          absl::StrCat("belongs to awm and v_grpo; pull ", NameOf(m),
                       " towards the reference with method.kl_weight, got ", m.old_kl_weight()));
    }
    return;
  }
  const std::string name = NameOf(m);
  if (m.name() == v1::METHOD_NAME_NFT && c.replay().fraction() > 0) {
    f.Warn("replay.fraction",
           "nft takes pictures for draws of its old policy; replayed ones are of older policies");
  }
  if (m.step_fraction() < 1 || m.step_weight() != v1::STEP_WEIGHT_NONE) {
    f.Error("method.step_weight",
            absl::StrCat(name,
                         " trains no denoising steps: set step_weight to none and "
                         "step_fraction to 1, and choose times with method.times"));
  }
  if (m.correction() != v1::CORRECTION_SEQUENCE) {
    f.Warn("method.correction",
           absl::StrCat("has no effect: ", name, " has no density to correct"));
  }
  if (m.name() == v1::METHOD_NAME_NFT && m.old_kl_weight() > 0) {
    f.Error("method.old_kl_weight",
            absl::StrCat("belongs to awm and v_grpo: nft's old policy is part of its loss, got ",
                         m.old_kl_weight()));
  }
  TimesRules(c, f);
  OldPolicyRules(m, f);
}

}  // namespace oxbow::config
