// What a run has trained so far, out of one of its checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "io/tensor_bytes.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {

struct TrainedPart {
  v1::RunConfig config;
  std::map<std::string, io::TensorBytes> tensors;  // The adapter's, or all that trains.
  std::map<std::string, std::string> provenance;   // To write beside them.

  bool lora() const { return config.model().trained() == v1::TRAINED_PART_LORA; }
};

// The running average where there is one, unless `raw`; of the newest checkpoint unless `step`
// names another. kNotFound without a run or checkpoint, kDataLoss if it is damaged.
absl::StatusOr<TrainedPart> ReadTrainedPart(const std::filesystem::path& run,
                                            std::optional<uint64_t> step = std::nullopt,
                                            bool raw = false);

}  // namespace oxbow::cli
