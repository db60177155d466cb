// SPDX-License-Identifier: Apache-2.0
// The roles that may make each call, and those that may answer it. This is the only place that says
// so: rpc/access.h applies it to every call under TLS, on both sides. A call without a row is
// refused.
#pragma once

#include <span>
#include <string_view>

#include "rpc/identity.h"

namespace oxbow::rpc {

struct RoleRow {
  std::string_view method;  // As on the wire: "/package.Service/Method".
  Roles callers;
  Roles servers;
};

std::span<const RoleRow> RoleTable();

// The row of a method; null if there is none.
const RoleRow* RowOf(std::string_view method);

}  // namespace oxbow::rpc
