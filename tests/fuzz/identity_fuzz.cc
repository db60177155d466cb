// SPDX-License-Identifier: Apache-2.0
// For any text: as a URI it is refused, or written again it is the same; as the name of a worker it
// is refused, or has only the letters that it may have; as a list of revocations it is refused with
// a line, or each of its entries is an identity or a serial number.
#include <algorithm>

#include "base/check.h"
#include "base/ids.h"
#include "base/trace.h"
#include "rpc/access.h"
#include "rpc/identity.h"
#include "tests/fuzz/bytes_input.h"

namespace {

bool IsHex(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F');
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  const std::string text(fuzz::Text(data, size));
  if (const auto identity = rpc::ParseIdentity(text); identity.ok()) {
    OXBOW_CHECK(rpc::UriOf(*identity) == text) << text;
    OXBOW_CHECK(!identity->fleet.empty()) << text;
    (void)rpc::MayBeWorker(*identity, "gpu-7");
  }
  if (CheckWorkerId(text).ok()) {
    OXBOW_CHECK(!text.empty() && text.size() <= 128 && text.find('\n') == text.npos) << text;
  }
  if (const auto trace = ParseTraceparent(text)) {
    OXBOW_CHECK(ParseTraceparent(Traceparent(*trace)) == trace) << text;
  }
  const auto revoked = rpc::ParseRevocations(text);
  if (!revoked.ok()) {
    OXBOW_CHECK(absl::IsInvalidArgument(revoked.status())) << revoked.status().ToString();
    return 0;
  }
  for (const std::string& entry : *revoked) {
    OXBOW_CHECK(IsHex(entry) || rpc::ParseIdentity(entry).ok()) << entry;
  }
  return 0;
}
