// SPDX-License-Identifier: Apache-2.0
// A text encoder of a model directory: the graph that fits its config.json, beside it or among
// those that come with oxbow, and its weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/exported_graph/graph.h"
#include "core/model/text_encoder.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"

namespace oxbow::io {

struct EncoderFiles {
  DiffusersComponent component;
  model::exported::Graph graph;

  // A whole number of the config, or the default of its class. Dies if the class has no such key.
  int64_t Size(const std::string& key) const;
};

// Reads no weights, but checks by their headers that all are there. kFailedPrecondition without a
// graph of this class and config, with the command that makes one, and for tensors that are missing
// or of other shapes. kDataLoss for a damaged file.
absl::StatusOr<EncoderFiles> OpenEncoder(const DiffusersComponent& encoder);

// Reads the weights. In kFloat CLIP computes in float32 and other encoders in the type they are
// stored in: in float32 T5-XXL is 19 GB.
absl::StatusOr<std::unique_ptr<model::TextEncoder>> LoadEncoder(const EncoderFiles& files,
                                                                const TextEncoders::Options& to);

// Whether an encoder's products are taken in the type that its weights are stored in, unless a run
// says bf16: all but CLIPs, which are small.
bool KeepsStoredType(const DiffusersComponent& encoder);

}  // namespace oxbow::io
