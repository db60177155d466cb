#include "core/rl/policy_copies.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/model/policy.h"

namespace oxbow::rl {
namespace {

constexpr char kOld[] = "old_policy";
constexpr char kReference[] = "reference";

}  // namespace

PolicyCopies::PolicyCopies(const TrainerOptions& options, model::Policy& policy)
    : options_(options), policy_(policy) {}

double PolicyCopies::Follow(uint64_t done) {
  const at::NoGradGuard no_grad;
  const at::Tensor& weights = policy_.parameters().flat();
  double decay = 0;
  if (policy_.has_old() && done % options_.old_decay.every == 0) {
    decay = DecayAt(options_.old_decay, done);
    at::Tensor& old = policy_.old_parameters().flat();
    // Not a weighted sum with weight 0: a copy has the same bits.
    if (decay == 0) {
      old.copy_(weights);
    } else {
      old.mul_(decay).add_(weights, 1 - decay);
    }
  }
  if (options_.reference_every > 0 && done % static_cast<uint64_t>(options_.reference_every) == 0) {
    policy_.reference_parameters().flat().copy_(weights);
  }
  return decay;
}

std::map<std::string, at::Tensor> PolicyCopies::State() const {
  std::map<std::string, at::Tensor> state;
  if (policy_.has_old()) state[kOld] = policy_.old_parameters().flat().detach().clone();
  if (options_.reference_every > 0) {
    state[kReference] = policy_.reference_parameters().flat().detach().clone();
  }
  return state;
}

void PolicyCopies::Load(const std::map<std::string, at::Tensor>& state) {
  const at::NoGradGuard no_grad;
  if (policy_.has_old()) policy_.old_parameters().flat().copy_(state.at(kOld));
  if (options_.reference_every > 0) {
    policy_.reference_parameters().flat().copy_(state.at(kReference));
  }
}

}  // namespace oxbow::rl
