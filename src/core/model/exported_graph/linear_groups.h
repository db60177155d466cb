// SPDX-License-Identifier: Apache-2.0
// Linear layers of one input, which one product can compute where their weights lie side by side.
#pragma once

#include <vector>

#include "core/model/exported_graph/program.h"

namespace oxbow::model::exported {

// Groups of two or more nodes of linear layers that read one value, in one section, with biases
// all or none: the first node may run all. None is left that a fusion takes, or whose products
// stay float32. Requires sections, folding and fusions.
std::vector<std::vector<size_t>> LinearGroups(const Program& program);

bool HasBias(const GraphNode& linear);

}  // namespace oxbow::model::exported
