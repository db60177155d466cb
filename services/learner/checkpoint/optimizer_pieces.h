// SPDX-License-Identifier: Apache-2.0
// The moments of an optimiser that is spread over ranks: each rank writes what it holds.
//
//   optimizer.rank0-of-2.safetensors   adamw.first_moment [n0], adamw.second_moment [n0]
//   optimizer.rank1-of-2.safetensors   adamw.first_moment [n1], adamw.second_moment [n1]
//
// One after another they are the whole moments, [n0 + n1], for any number of ranks. All ranks write
// to the directory of one run: on several machines it must be shared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/policy.h"
#include "core/parallel/ranks.h"
#include "services/learner/checkpoint/checkpoint_store.h"
#include "services/learner/checkpoint/checkpoint_tensors.h"

namespace oxbow::learner {

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
