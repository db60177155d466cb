// SPDX-License-Identifier: Apache-2.0
// For any bytes as endpoints.json: it is refused as damaged, or what is read survives a write.
#include "base/check.h"
#include "run/endpoints_file.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const fuzz::Scratch scratch;
  scratch.Write("endpoints.json", fuzz::Text(data, size));
  const auto starter = run::ReadStarter(scratch.path());
  OXBOW_CHECK(starter.ok() || absl::IsDataLoss(starter.status())) << starter.status().ToString();
  const auto services = run::ReadEndpoints(scratch.path());
  OXBOW_CHECK(services.ok() || absl::IsDataLoss(services.status())) << services.status().ToString();
  if (!services.ok() || !run::WriteEndpoints(scratch.path(), *services).ok()) return 0;
  const auto again = run::ReadEndpoints(scratch.path());
  OXBOW_CHECK(again.ok() && again->size() == services->size()) << again.status().ToString();
  return 0;
}
