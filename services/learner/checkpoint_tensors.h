// SPDX-License-Identifier: Apache-2.0
// Tensors of a checkpoint: copied to the host, written to files and read back.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/model/policy.h"
#include "core/parallel/host_copy.h"
#include "services/learner/checkpoint_store.h"
#include "services/learner/weights_source.h"

namespace oxbow::learner {

// Copies on the CPU that nobody else changes; tensors there that nobody else holds are taken, not
// copied.
model::NamedTensors TakenToHost(model::NamedTensors tensors);

// Tensors in one copy of a flat tensor, one after another in the order of their names.
struct FlatCopy {
  parallel::HostCopy values;
  TensorShapes shapes;
};
// Begins the copy; what a GPU holds comes while it goes on.
FlatCopy CopyOf(const model::ParameterSet& parameters);

// A safetensors file of `copy`, which lives as long. Its memory is given back as it is written.
FileContent ContentOf(FlatCopy& copy);

// A safetensors file of `tensors`, which live as long and are freed once they are written.
FileContent ContentOf(model::NamedTensors& tensors);

// Tensors of their own; the file is mapped meanwhile. kDataLoss names a file that is missing.
absl::StatusOr<model::NamedTensors> TensorsOf(const Checkpoint& checkpoint,
                                              const std::string& file);

}  // namespace oxbow::learner
