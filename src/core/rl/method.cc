#include "core/rl/method.h"

#include "core/rl/forward_process.h"
#include "core/rl/policy_gradient.h"

namespace oxbow::rl {

std::unique_ptr<Method> MakeMethod(const TrainerOptions& options, model::Policy& policy,
                                   parallel::Ranks& ranks) {
  if (IsForwardProcess(options.method)) {
    return std::make_unique<ForwardProcess>(options, policy, ranks);
  }
  return std::make_unique<PolicyGradient>(options, policy, ranks);
}

}  // namespace oxbow::rl
