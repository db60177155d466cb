// SPDX-License-Identifier: Apache-2.0
// Any config.json of a network is read or refused as such. The first byte says which network.
#include "base/check.h"
#include "core/model/clip_text.h"
#include "core/model/decoder_architecture.h"
#include "tests/fuzz/bytes_input.h"

namespace {

template <typename Params>
void CheckRefusal(const absl::StatusOr<Params>& params) {
  if (params.ok()) return;
  OXBOW_CHECK(absl::IsInvalidArgument(params.status())) << params.status().ToString();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  if (size == 0) return 0;
  const std::string text(fuzz::Text(data + 1, size - 1));
  switch (data[0] % 2) {
    case 0:
      CheckRefusal(model::DecoderClassOf(text));
      break;
    default:
      CheckRefusal(model::ParseClipTextConfig(text));
  }
  return 0;
}
