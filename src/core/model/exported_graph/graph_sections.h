// SPDX-License-Identifier: Apache-2.0
// The sections of a graph file, each read into its part of a Graph. kInvalidArgument names the key.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/exported_graph/graph.h"
#include "core/model/exported_graph/json_field.h"

namespace oxbow::model::exported {

inline constexpr int64_t kSlotsMax = 1 << 20;
inline constexpr int64_t kNodesMax = 1 << 18;
inline constexpr int64_t kSizeMax = int64_t{1} << 31;  // One dimension's, and a symbol's.
inline constexpr size_t kDimensionsMax = 8;

absl::StatusOr<at::ScalarType> ScalarTypeFrom(const Field& name);

// graph_tensors.cc. Requires graph.slots.
absl::Status ReadSymbols(const Field& root, Graph& graph);
absl::Status ReadInputs(const Field& root, Graph& graph);  // After the symbols.
absl::Status ReadOutputs(const Field& root, Graph& graph);
absl::Status ReadParameters(const Field& root, Graph& graph);
absl::Status ReadConstants(const Field& root, Graph& graph);

// graph_decoder.cc. After all other sections.
absl::Status ReadNextGraph(const Field& root, Graph& graph);
absl::Status ReadDecoderSection(const Field& root, Graph& graph);  // After the next graph.

// graph_nodes.cc
absl::Status ReadNodes(const Field& root, Graph& graph);
absl::Status ReadBlocks(const Field& root, Graph& graph);  // After the nodes.

}  // namespace oxbow::model::exported
