// SPDX-License-Identifier: Apache-2.0
// A text encoder of a model directory: the graph of its config.json (io/network_graph.h), and its
// weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/text_encoder.h"
#include "io/diffusers_directory.h"
#include "io/network_graph.h"
#include "io/prompts/text_encoders.h"

namespace oxbow::io {

struct EncoderFiles {
  DiffusersComponent component;
  NetworkGraph network;

  int64_t Size(const char* key) const { return network.Size(key); }
};

// Reads no weights, but checks by their headers that all are there. kFailedPrecondition for tensors
// that are missing or of other shapes; else as FindNetworkGraph.
absl::StatusOr<EncoderFiles> OpenEncoder(const DiffusersComponent& encoder);

// Reads the weights. Errors as LoadTensors'; kFailedPrecondition for one tensor that is there under
// two names with different values.
absl::StatusOr<std::unique_ptr<model::TextEncoder>> LoadEncoder(const EncoderFiles& files,
                                                                const TextEncoders::Options& to);

// Whether an encoder computes in the 16 bits that it is stored in, where a run asks for float32:
// all but CLIPs, which are small. In float32 T5-XXL is 19 GB.
bool KeepsStoredType(const DiffusersComponent& encoder);

}  // namespace oxbow::io
