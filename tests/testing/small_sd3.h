// SPDX-License-Identifier: Apache-2.0
// A transformer small enough for unit tests: every kind of layer once.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/testing/graph_architecture.h"
#include "tests/testing/initial_weights.h"

namespace oxbow::model {

// Latents [2, 8, 8] at most, prompts of width 12 and 10; the block of that index has two
// attentions. There are graphs of 2 blocks (dual 0 and 1), 3 and 5 (dual 1).
inline std::shared_ptr<const Architecture> SmallSd3(int64_t blocks, int64_t dual) {
  return testing::GraphArchitecture(
      absl::StrCat("tests/testing/graphs/small_", blocks, "_blocks_dual_", dual, ".json.gz"));
}

}  // namespace oxbow::model
