// SPDX-License-Identifier: Apache-2.0
// Damage of checkpoints on the disk, as a disk or a careless person does it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "absl/status/statusor.h"

namespace oxbow::chaos {

// The committed steps of the newest checkpoint in `directory` ("step_000003"); nothing without one.
std::optional<uint64_t> NewestCheckpoint(const std::filesystem::path& directory);

// Change the newest checkpoint and return its committed steps. kNotFound if there is none.

// Flips a bit in the middle of a file: the manifest, or the weights if `odd`.
absl::StatusOr<uint64_t> FlipBit(const std::filesystem::path& directory, bool odd);

// Makes the weights longer than 4 GiB by a hole.
absl::StatusOr<uint64_t> GrowBeyond4Gib(const std::filesystem::path& directory);

// The operator's step after "every checkpoint is damaged": sets that checkpoint aside. A run that
// has no other begins again.
void SetAside(const std::filesystem::path& directory, uint64_t committed_steps);

}  // namespace oxbow::chaos
