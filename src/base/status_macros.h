// SPDX-License-Identifier: Apache-2.0
// OXBOW_RETURN_IF_ERROR(expr) and OXBOW_ASSIGN_OR_RETURN(declaration, expr) for absl::Status code.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"

#define OXBOW_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                  \
    if (absl::Status oxbow_status_ = (expr); !oxbow_status_.ok()) return oxbow_status_; \
  } while (false)

#define OXBOW_CONCAT_INNER_(a, b) a##b
#define OXBOW_CONCAT_(a, b) OXBOW_CONCAT_INNER_(a, b)
#define OXBOW_ASSIGN_OR_RETURN(declaration, expr) \
  OXBOW_ASSIGN_OR_RETURN_(OXBOW_CONCAT_(oxbow_statusor_, __LINE__), declaration, expr)
#define OXBOW_ASSIGN_OR_RETURN_(statusor, declaration, expr) \
  auto statusor = (expr);                                    \
  if (!statusor.ok()) return std::move(statusor).status();   \
  declaration = *std::move(statusor)

namespace oxbow {

// Prefixes the message of an error, keeping its code and what else it says: Annotate(s, "read entry
// 5").
inline absl::Status Annotate(const absl::Status& status, std::string_view where) {
  if (status.ok()) return status;
  absl::Status named(status.code(), std::string(where) + ": " + std::string(status.message()));
  status.ForEachPayload(
      [&](const auto& type, const absl::Cord& content) { named.SetPayload(type, content); });
  return named;
}

}  // namespace oxbow
