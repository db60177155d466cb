// SPDX-License-Identifier: Apache-2.0
// Tensors, shapes and linear layers by their published names. Maps are sorted by name, so that
// there is one order everywhere. Sees no torch header.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace at {
class Tensor;
}  // namespace at

namespace oxbow::model {

using NamedTensors = std::map<std::string, at::Tensor>;
using Shapes = std::map<std::string, std::vector<int64_t>>;
// Width in and width out of every linear layer, by module.
using LinearModules = std::map<std::string, std::pair<int64_t, int64_t>>;

}  // namespace oxbow::model
