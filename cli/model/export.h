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
  bool float32 = false;  // With `merged`: no type of 16 bits.
};

struct ExportedFiles {
  std::filesystem::path directory;
  std::string said = {};  // A note for the user: how much of an adapter rounding took.
};

// The base model's weights are read for `merged` alone, tensor by tensor, and its type is kept
// unless asked otherwise. kNotFound without a run, checkpoint or base model; kDataLoss if one is
// damaged; kFailedPrecondition if adapter and base do not fit; kInvalidArgument for an adapter's
// format of a run that trained all weights.
absl::StatusOr<ExportedFiles> ExportRun(const ExportRequest& request);

}  // namespace oxbow::cli
