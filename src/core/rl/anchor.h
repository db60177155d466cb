// A pull towards the reference at noise levels that the method itself does not train.
//
//   weight * mean_elements |v_theta(x_t, t) - v_reference(x_t, t)|^2,   x_t = (1 - t) x_0 + t eps
//
// at one t uniform in [low, high] for each sample, with noise of its own. A method that trains high
// noise alone moves the field at low noise as well, by sharing its weights: pictures get speckled.
// Held there, it keeps the details of the base while composition follows the reward.
#pragma once

#include <cstdint>
#include <vector>

namespace at {
class Tensor;
}
namespace oxbow::model {
class Policy;
}

namespace oxbow::rl {

struct Group;
struct RowRef;

struct AnchorOptions {
  double weight = 0;
  double low = 0.02;
  double high = 0.7;
};

// Squared velocity differences [S] of the samples of `refs`, one ref for each; with gradient, not
// weighted. Requires that the samples' latents end at their pictures.
at::Tensor AnchorPull(const AnchorOptions& options, uint64_t run_seed, const model::Policy& policy,
                      const std::vector<Group>& groups, const std::vector<RowRef>& refs);

}  // namespace oxbow::rl
