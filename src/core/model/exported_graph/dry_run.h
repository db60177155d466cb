// SPDX-License-Identifier: Apache-2.0
// A run of a program on tensors without values: finds shapes that do not fit before any weight is
// read, and counts the memory that a pass takes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/exported_graph/interpreter.h"

namespace oxbow::model::exported {

// Bytes in float32 that are held for the backward pass when the forward pass is over, the velocity
// included: of the values of nodes. Copies that an operator makes inside itself are not seen.
struct KeptBytes {
  uint64_t outside = 0;  // Blocks: by nodes of none of them.
  uint64_t blocks = 0;   // All together.
  uint64_t largest_block = 0;
  uint64_t between = 0;  // Values that blocks hand on: all that recomputation keeps.
};

// `sizes`: of every symbol. `adapted`: modules of linear layers whose adapters train, and nothing
// else; empty: every weight trains. kInvalidArgument names the node that does not take its
// arguments. kUnimplemented if an operator cannot run without values.
absl::StatusOr<KeptBytes> DryRun(const std::shared_ptr<const Program>& program,
                                 const SymbolValues& sizes,
                                 const std::vector<std::string>& adapted = {});

// Bytes in float32 that a run without gradients holds at most, beside weights and inputs: of the
// values of nodes, and of a decoder's states. Memory that an operator takes inside itself is not
// seen. Statuses are those of DryRun.
absl::StatusOr<uint64_t> PeakBytes(const std::shared_ptr<const Program>& program,
                                   const SymbolValues& sizes);

std::vector<int64_t> ShapeOf(const GraphInput& input, const SymbolValues& sizes);

// The shapes of the outputs at these sizes. Statuses are those of DryRun.
absl::StatusOr<std::vector<std::vector<int64_t>>> OutputShapes(
    const std::shared_ptr<const Program>& program, const SymbolValues& sizes);

}  // namespace oxbow::model::exported
