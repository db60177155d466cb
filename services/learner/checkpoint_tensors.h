// SPDX-License-Identifier: Apache-2.0
// Tensors of a checkpoint: copied to the host, written to files and read back.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/model/policy.h"
#include "services/learner/checkpoint_store.h"

namespace oxbow::learner {

// Copies on the CPU that nobody else changes.
model::NamedTensors AllOnHost(const model::NamedTensors& tensors);

// The same; tensors on the CPU that nobody else holds are taken, not copied.
model::NamedTensors TakenToHost(model::NamedTensors tensors);

// A safetensors file of `tensors`, which live as long and are freed once they are written.
FileContent ContentOf(model::NamedTensors& tensors);

// Tensors of their own; the file is mapped meanwhile. kDataLoss names a file that is missing.
absl::StatusOr<model::NamedTensors> TensorsOf(const Checkpoint& checkpoint,
                                              const std::string& file);

}  // namespace oxbow::learner
