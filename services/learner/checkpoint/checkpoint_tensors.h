// SPDX-License-Identifier: Apache-2.0
// Tensors of a checkpoint: copied to the host, written to files and read back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/policy.h"
#include "core/parallel/host_copy.h"
#include "core/parallel/ranks.h"
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

// The file of a rank's piece of an optimiser that is spread over ranks: each writes what it holds.
//
//   optimizer.rank0-of-2.safetensors   adamw.first_moment [n0], adamw.second_moment [n0]
//   optimizer.rank1-of-2.safetensors   adamw.first_moment [n1], adamw.second_moment [n1]
//
// One after another they are the whole moments, [n0 + n1], for any number of ranks. All ranks write
// to the directory of one run: on several machines it must be shared.
std::string PieceName(int rank, int ranks);

// Writes the piece of a rank above 0 to UnfinishedCheckpoint, which rank 0 has prepared.
absl::StatusOr<FileDigest> WritePieceOf(int rank, int ranks,
                                        const std::filesystem::path& run_directory,
                                        uint64_t committed_steps, TensorCopies piece);

// The whole moments; none if the checkpoint has no pieces. kDataLoss names a piece that is missing
// or does not fit. Takes the memory of the whole.
absl::StatusOr<model::NamedTensors> JoinPieces(const Checkpoint& checkpoint);

// Whether every rank finds in its `run_directory` what rank 0 writes there. kFailedPrecondition, on
// every rank, names those that do not. Called on all ranks.
absl::Status CheckDirectoryIsShared(parallel::Ranks& ranks,
                                    const std::filesystem::path& run_directory);

}  // namespace oxbow::learner
