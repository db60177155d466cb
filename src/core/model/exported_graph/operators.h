// SPDX-License-Identifier: Apache-2.0
// The operators that a graph may use: an allow-list, since a graph is input. All are pure functions
// of their arguments (and of `self`, where they write in place): none reads files, clocks or
// generators, and none hands a value of a tensor to the host.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace oxbow::model::exported {

// Name and overload of the operator that runs for an operator of a graph: itself, but zeros for
// memory that nothing wrote (empty_like), which a graph could otherwise read. kInvalidArgument for
// one that is not allowed.
struct OperatorName {
  std::string name;      // "aten::add"
  std::string overload;  // "Tensor"
};
absl::StatusOr<OperatorName> AllowedOperator(const std::string& name, const std::string& overload);

// Whether a result may share memory with an argument although the operator's schema does not say
// so.
bool MayReturnItsArgument(const OperatorName& op);

}  // namespace oxbow::model::exported
