// SPDX-License-Identifier: Apache-2.0
// The settings by which TensorBoard's tab of hyperparameters tells runs apart: those that people
// tune. All others are in the text `config` beside them.
#pragma once

#include <map>
#include <string>

#include "io/tensorboard/event_writer.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::learner {

// By their keys in a run file.
std::map<std::string, io::HyperParameter> HyperParametersOf(const v1::RunConfig& config);

}  // namespace oxbow::learner
