// SPDX-License-Identifier: Apache-2.0
// Any diffusers transformer as an Architecture: what its exported graph says (docs/models.md).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/architecture.h"

namespace oxbow::model::exported {

// kInvalidArgument for a graph that cannot be read, for one of another class or config (naming the
// first key that differs), and for one that does not run on shapes that it says it takes.
absl::StatusOr<std::shared_ptr<const Architecture>> ReadExportedArchitecture(
    const ArchitectureSource& source);

}  // namespace oxbow::model::exported
