// SPDX-License-Identifier: Apache-2.0
// A checkpoint of a run turned into the files of another tool; io/lora_file.h has their layout.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace oxbow::cli {

struct ExportRequest {
  std::filesystem::path run;          // A run's directory.
  std::string format;                 // diffusers, peft, comfyui or merged.
  std::filesystem::path out;          // Empty: RUN/export/FORMAT.
  std::string checkpoint = "newest";  // As ReadTrainedPart's.
  bool raw = false;                   // The last weights even where there is a running average.
  // With `merged`: all parts of the model, not the transformer alone.
  bool whole_model = false;
};

// Returns the directory written. The base model is read for `merged` alone, tensor by tensor, and
// its type is kept. kNotFound without a run, checkpoint or base model; kDataLoss if one is damaged;
// kFailedPrecondition if adapter and base do not fit; kInvalidArgument for an adapter's format of a
// run that trained all weights.
absl::StatusOr<std::filesystem::path> ExportRun(const ExportRequest& request);

}  // namespace oxbow::cli
