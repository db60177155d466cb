// SPDX-License-Identifier: Apache-2.0
// Whether a run's processes fit this machine; `oxbow validate` and `oxbow train` both ask this.
#pragma once

#include <vector>

#include "config/validate.h"
#include "oxbow/v1/config.pb.h"
#include "run/model_facts.h"

namespace oxbow::cli {

// Warnings where the host, or a GPU, has less memory than the run takes there.
std::vector<config::Problem> CheckMemory(const v1::RunConfig& config, const run::ModelFacts& facts);

}  // namespace oxbow::cli
