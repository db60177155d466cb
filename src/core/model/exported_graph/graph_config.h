// SPDX-License-Identifier: Apache-2.0
// Whether a graph is the one of a config.json.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/model/exported_graph/graph.h"

namespace oxbow::model::exported {

// As diffusers reads it: keys that start with `_` are notes, a key that is left out has the class's
// default, and one that the class does not know means nothing. kInvalidArgument names the first key
// in which the two differ.
absl::Status CheckConfig(const Graph& graph, const std::string& config_json);

}  // namespace oxbow::model::exported
