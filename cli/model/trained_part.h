// SPDX-License-Identifier: Apache-2.0
// The part that a run has trained so far, out of one of its checkpoints, and a new run's start from
// it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "io/lora_file.h"
#include "io/safetensors.h"
#include "io/tensor_bytes.h"
#include "oxbow/v1/config.pb.h"
#include "run/start_weights.h"

namespace oxbow::cli {

// `oxbow train --from RUN[@CHECKPOINT]`: a new run that starts from what another one has trained,
// or from an adapter's file. Only weights pass over: the optimiser, the counters and the replay
// buffer are new.
struct StartFrom {
  std::string run;  // Its directory.
  std::string checkpoint = "newest";
};

// "runs/old@best", "runs/old@40", "runs/old". A part behind @ that names no checkpoint belongs to
// the path.
StartFrom ParseStartFrom(const std::string& text);

// The weights for a run of `config`: the running average where there is one. kNotFound without the
// run or checkpoint; kInvalidArgument if one of the two runs trains all weights and the other an
// adapter, or an adapter of a larger rank or other modules; kFailedPrecondition if they do not fit
// the model of `config`.
absl::StatusOr<run::StartWeights> StartWeightsFrom(const std::string& text,
                                                   const v1::RunConfig& config);

struct TrainedPart {
  v1::RunConfig config;
  std::map<std::string, io::TensorBytes> tensors;  // The adapter's, or all that trains.
  std::map<std::string, std::string> provenance;   // To write beside them.
  uint64_t step = 0;                               // The checkpoint's.

  bool lora() const { return config.model().trained() == v1::TRAINED_PART_LORA; }
};

// The config of a run. Its relative paths are found from the run's directory up where they are not
// in the working directory. kNotFound, naming the runs beside it, if there is none.
absl::StatusOr<v1::RunConfig> ConfigOfRun(const std::filesystem::path& run);

// The values that --checkpoint takes.
inline constexpr char kCheckpointHelp[] =
    "newest, best (by the run's checkpoint.best) or a number of steps (default: newest)";

// The running average where there is one, unless `raw`. `checkpoint`: "newest", "best" (by the
// run's checkpoint.best) or a number of steps. kNotFound without a run or checkpoint, kDataLoss if
// it is damaged, kInvalidArgument for another name.
absl::StatusOr<TrainedPart> ReadTrainedPart(const std::filesystem::path& run,
                                            const std::string& checkpoint = "newest",
                                            bool raw = false);

// The layers with an adapter have these tensors, behind their names.
inline constexpr char kLoraDown[] = ".lora_A.weight";
inline constexpr char kLoraUp[] = ".lora_B.weight";

// Whether the weights, or the modules of the adapter, are in a model with these tensors.
// kFailedPrecondition names what it has not, or in another shape.
absl::Status CheckFits(const TrainedPart& trained,
                       const std::map<std::string, io::TensorHeader>& base,
                       const std::string& base_path);

// The adapter as a file says it. Requires lora().
io::LoraExport AdapterOf(const TrainedPart& trained);

}  // namespace oxbow::cli
