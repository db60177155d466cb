// SPDX-License-Identifier: Apache-2.0
// The YAML files compiled into every binary: configs/defaults.yaml and configs/recipes/NAME.yaml.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace oxbow::config {

std::string_view DefaultsYaml();

// Name and text of every recipe, by name.
const std::vector<std::pair<std::string, std::string>>& Recipes();

}  // namespace oxbow::config
