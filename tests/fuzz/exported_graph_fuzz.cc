// SPDX-License-Identifier: Apache-2.0
// For any graph file: it is refused as such, or every operator of it is resolved and its slots,
// blocks and folded nodes are in range.
// Promise: A graph is input.
#include "base/check.h"
#include "core/model/exported_graph/program.h"
#include "tests/fuzz/bytes_input.h"

namespace {

using namespace oxbow::model::exported;  // NOLINT: a file of two functions.

void CheckProgram(const Program& program) {
  const Graph& graph = program.graph;
  OXBOW_CHECK(program.steps.size() == graph.nodes.size());
  OXBOW_CHECK(program.folded.size() == graph.nodes.size());
  size_t next = 0;
  for (const Section& section : program.sections) {
    OXBOW_CHECK(section.first == next && section.end > section.first);
    next = section.end;
    for (const Slot slot : section.writes) OXBOW_CHECK(static_cast<size_t>(slot) < graph.slots);
  }
  OXBOW_CHECK(next == graph.nodes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto graph = ParseGraph(oxbow::fuzz::Text(data, size));
  if (!graph.ok()) {
    OXBOW_CHECK(absl::IsInvalidArgument(graph.status())) << graph.status().ToString();
    return 0;
  }
  const auto program = Compile(*std::move(graph));
  if (program.ok()) {
    CheckProgram(**program);
  } else {
    OXBOW_CHECK(absl::IsInvalidArgument(program.status())) << program.status().ToString();
  }
  return 0;
}
