// SPDX-License-Identifier: Apache-2.0
// The YAML files compiled into every binary: configs/defaults.yaml, configs/recipes/NAME.yaml and
// configs/sets/NAME.yaml.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace oxbow::config {

std::string_view DefaultsYaml();

// Name and text of every recipe, by name.
const std::vector<std::pair<std::string, std::string>>& Recipes();

// The same of every set of prompts for `oxbow eval --set`.
const std::vector<std::pair<std::string, std::string>>& EvaluationSets();

}  // namespace oxbow::config
