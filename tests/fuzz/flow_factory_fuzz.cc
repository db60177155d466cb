// SPDX-License-Identifier: Apache-2.0
// For any text as a Flow-Factory config: it is imported or refused, and what is imported is YAML
// that this build's own reader can be given.
#include "base/check.h"
#include "config/import/flow_factory.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(oxbow::fuzz::Text(data, size));
  const auto run = oxbow::config::ImportFlowFactory(text, "run.yaml");
  if (!run.ok()) return 0;
  OXBOW_CHECK(!oxbow::config::ImportedYaml(*run, "run.yaml").empty());
  return 0;
}
