// The part of `oxbow validate` that looks at the disk and at this build: model directory, prompt
// files, names of rewards.
#pragma once

#include <string>
#include <vector>

#include "config/validate.h"
#include "run/model_facts.h"

namespace oxbow::cli {

std::vector<config::Problem> CheckFiles(const v1::RunConfig& config);

// Rules and files together.
std::vector<config::Problem> CheckRun(const v1::RunConfig& config);

}  // namespace oxbow::cli
