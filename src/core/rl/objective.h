// Clipped policy losses, one value per row (a row is one step of one trajectory), to be minimised.
//
// lp are log-probs averaged over latent elements, [R]. Gradients flow through `lp_new` alone; the
// other arguments are constants. `weight` is positive and stays outside the clip.
#pragma once

namespace at {
class Tensor;
}  // namespace at

namespace oxbow::rl {

// Where a ratio is clipped: to [1 - low, 1 + high].
struct ClipRange {
  double low = 0;
  double high = 0;
};

// weight max(-A r, -A clamp(r, 1 - low, 1 + high)), r = exp(lp_new - lp_old): PPO's clip as
// Flow-GRPO uses it (arXiv:2505.05470), where high is low; DAPO (arXiv:2503.14476) takes more. The
// naive off-policy baseline passes the behaviour's lp as `lp_old`.
at::Tensor ClippedLoss(const at::Tensor& lp_new, const at::Tensor& lp_old,
                       const at::Tensor& advantage, const at::Tensor& weight, ClipRange clip);

// -min(r A, clamp(r, max(r' - low, 0), r' + high) A), r = pi / behaviour, r' = pi_old / behaviour:
// the off-policy GRPO of arXiv:2505.22257, whose clip is centred on the old policy.
at::Tensor OffPolicyLoss(const at::Tensor& lp_new, const at::Tensor& lp_old,
                         const at::Tensor& lp_behaviour, const at::Tensor& advantage,
                         ClipRange clip);

}  // namespace oxbow::rl
