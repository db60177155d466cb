// SPDX-License-Identifier: Apache-2.0
// For any text as a file of costs, or as NAME=VALUE: it is refused, or written and read again it
// gives the same costs.
#include "base/check.h"
#include "cli/simulate/simulation_costs.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  const std::string text(fuzz::Text(data, size));
  simulate::Costs costs;
  (void)cli::SetCost(text, costs);
  const absl::Status read = cli::ReadCosts(text, costs);
  OXBOW_CHECK(read.ok() || absl::IsInvalidArgument(read)) << read.ToString();
  const std::string written = cli::CostsJson(costs);
  simulate::Costs again;
  const absl::Status status = cli::ReadCosts(written, again);
  OXBOW_CHECK(status.ok()) << status.ToString();
  OXBOW_CHECK(cli::CostsJson(again) == written) << written;
  return 0;
}
