// SPDX-License-Identifier: Apache-2.0
// The answer to a worker's registration.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/learner/run_setup.h"

namespace oxbow::learner {

struct RunEndpoints {
  std::string learner;             // Serves the weights.
  std::vector<std::string> sinks;  // By rank.
  std::vector<std::string> rewards;
  std::vector<std::string> buffers;
};

v1::RegisterResponse RegistrationOf(const RunSetup& setup, Epoch epoch,
                                    const RunEndpoints& endpoints);
// How workers draw held-out pictures, if the run has any.
absl::Status AddHeldOut(const RunSetup& setup, v1::RegisterResponse& registration);

}  // namespace oxbow::learner
