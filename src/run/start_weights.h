// SPDX-License-Identifier: Apache-2.0
// The weights that a run starts from, where they are not its model's: those of another run, or of
// an adapter's file. They are kept in the run's directory, so that it does not need their source
// again:
//
//   start/weights.safetensors   the trained part, by the names of a checkpoint
//   start/start.json            {"from": "runs/old, step 40", "sha256": ..., "bytes": ...}
//
// start.json is written last: without it there is no start.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/adapter_file.h"
#include "io/tensor_bytes.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

struct StartWeights {
  std::string from;  // For people.
  std::map<std::string, io::TensorBytes> tensors;
};

absl::Status WriteStart(const std::filesystem::path& run_dir, const StartWeights& start);

// Nothing if the run starts from its model. kDataLoss if the file is not the one that was written.
absl::StatusOr<std::optional<StartWeights>> ReadStart(const std::filesystem::path& run_dir);

// The source in start.json, with the first digits of the hash; "" without one.
std::string StartSource(const std::filesystem::path& run_dir);

// The tensors of `adapter` for a run with these settings: B is scaled where alpha / rank differs.
// A smaller rank stays (model::CompletedAdapter). kInvalidArgument if its rank is larger, or if it
// has modules that the run does not train.
absl::StatusOr<std::map<std::string, io::TensorBytes>> AdapterFor(const v1::LoraConfig& lora,
                                                                  io::StoredAdapter&& adapter);

// The same of an adapter's file or directory, for the model at model.path(); `from` is the file.
// Errors also as io::ReadAdapter's and those of a model directory.
absl::StatusOr<StartWeights> StartFromAdapter(const v1::ModelConfig& model,
                                              const std::filesystem::path& path);

}  // namespace oxbow::run
