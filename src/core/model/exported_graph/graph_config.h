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

// The command that makes the exported graph of a class, for errors. `directory` holds the
// component's config.json, and gets its graph. Without it the words that WithPaths replaces stand
// there.
std::string ExportCommand(const std::string& class_name, const std::string& directory = "");

// `text` with the paths of `directory` in the command that it holds, if it holds one.
std::string WithPaths(const std::string& text, const std::string& directory);

}  // namespace oxbow::model::exported
