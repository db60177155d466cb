// SPDX-License-Identifier: Apache-2.0
// Tensors of a checkpoint: copied to the host, written to files and read back.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/policy.h"
#include "core/parallel/host_copy.h"
#include "services/learner/checkpoint/checkpoint_store.h"
#include "services/learner/publish/weights_source.h"
#include "services/weights/snapshot.h"

namespace oxbow::learner {

// Tensors in one copy of a flat tensor, one after another in the order of their names.
struct FlatCopy {
  parallel::HostCopy values;
  TensorShapes shapes;
};
// Begins the copy; what a GPU holds comes while it goes on.
FlatCopy CopyOf(const model::ParameterSet& parameters);

// Tensors of a file of their own.
struct TensorCopies {
  std::map<std::string, parallel::HostCopy> flat;  // [n]; a GPU may still be writing them.
  model::NamedTensors small;                       // On the CPU; nobody else changes them.
};

// A safetensors file of `copy` or `copies`, which live as long, and can be written once. Memory is
// given back as it is written.
FileContent ContentOf(FlatCopy& copy);
FileContent ContentOf(TensorCopies& copies);
// The same of tensors in chunks, which nobody else need hold: each goes as it is written.
FileContent ContentOf(weights::Snapshot& cut);

// Tensors of their own; the file is mapped meanwhile. kDataLoss names a file that is missing.
absl::StatusOr<model::NamedTensors> TensorsOf(const Checkpoint& checkpoint,
                                              const std::string& file);

// The weights of the owed evaluation after `committed` steps, which the checkpoint itself has no
// more. kDataLoss if they are not beside it: those that are there are of its first.
absl::StatusOr<model::NamedTensors> OwedWeightsOf(const Checkpoint& checkpoint, uint64_t committed);

}  // namespace oxbow::learner
