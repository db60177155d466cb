// SPDX-License-Identifier: Apache-2.0
// Arithmetic on the sizes of tensors: what a graph does with numbers instead of tensors.
//
//   size(x, dim)  numel(x)  neg(a)  not(a)  int(a)  float(a)  ite(cond, a, b)
//   add sub mul floordiv mod truediv pow min max  eq ne lt le gt ge  and or    of (a, b)
//
// As in Python: floordiv and mod round down, comparisons give true or false, truediv and float give
// real numbers.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/exported_graph/graph.h"
#include "core/model/exported_graph/operator_call.h"

namespace oxbow::model::exported {

inline constexpr char kSymbolicPrefix[] = "sym::";

class SymbolicCall {
 public:
  // As OperatorCall::Resolve.
  static absl::StatusOr<SymbolicCall> Resolve(const GraphNode& node, std::vector<SlotType>& types);

  void Bind(const SlotValues& fixed);

  // kInvalidArgument for a dimension that there is not, a division by zero or a number that does
  // not fit in 64 bits.
  absl::Status Run(SlotValues& values) const;

 private:
  struct Operand {
    c10::IValue literal;
    Slot slot = kNoSlot;
    const c10::IValue& In(const SlotValues& values) const {
      return slot == kNoSlot ? literal : values[static_cast<size_t>(slot)];
    }
  };

  size_t operation_ = 0;  // Index in the table of the .cc file.
  std::vector<Operand> operands_;
  Slot output_ = kNoSlot;
  bool real_ = false;  // The result is no whole number.
};

}  // namespace oxbow::model::exported
