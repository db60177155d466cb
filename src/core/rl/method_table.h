// The class of each method: the trainer's way from a name in the options to an object.
#pragma once

#include <memory>

#include "core/rl/method.h"

namespace oxbow::parallel {
class Ranks;
}
namespace oxbow::model {
class Policy;
}

namespace oxbow::rl {

// All references outlive the method.
std::unique_ptr<Method> MakeMethod(const TrainerOptions& options, const model::Policy& policy,
                                   parallel::Ranks& ranks);

}  // namespace oxbow::rl
