// SPDX-License-Identifier: Apache-2.0
// For any bytes in place of a request of Flow-Factory's protocol: it is refused as the caller's
// error, or every item has a prompt and frames of one size.
#include <string>

#include "base/check.h"
#include "services/reward/compute_request.h"
#include "services/reward/scorer_panel.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  constexpr size_t kItemsMax = 4;
  const auto request = reward::ReadComputeRequest(std::string(fuzz::Text(data, size)), kItemsMax);
  if (!request.ok()) {
    OXBOW_CHECK(absl::IsInvalidArgument(request.status())) << request.status().ToString();
    return 0;
  }
  OXBOW_CHECK(!request->items.empty() && request->items.size() <= kItemsMax);
  for (const auto& item : request->items) {
    OXBOW_CHECK(!item.frames.empty());
    for (const Image8& frame : item.frames) {
      OXBOW_CHECK(reward::Validate(frame).ok());
      OXBOW_CHECK(frame.width == item.frames[0].width && frame.height == item.frames[0].height);
    }
  }
  return 0;
}
