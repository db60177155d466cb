// SPDX-License-Identifier: Apache-2.0
// The nodes of a program that depend on the inputs' sizes alone.
#pragma once

#include "core/model/exported_graph/program.h"

namespace oxbow::model::exported {

// Memory that values share, as far as operators' schemas say: slots of one class may be views of
// each other.
class SharedMemory {
 public:
  explicit SharedMemory(const Program& program);
  Slot ClassOf(Slot slot) const;

 private:
  void Join(Slot a, Slot b);
  mutable std::vector<Slot> parents_;
};

// kInvalidArgument for a node that writes in place to a weight, an input or a constant, or from
// within a block to what was made outside it: run again, the block would write twice.
absl::Status CheckWrites(const Program& program, const SharedMemory& memory);

// Sets folded, folded_results and folded_symbols.
void Fold(const SharedMemory& memory, Program& program);

}  // namespace oxbow::model::exported
