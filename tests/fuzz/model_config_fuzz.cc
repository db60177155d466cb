// SPDX-License-Identifier: Apache-2.0
// For any config.json of a network: it is refused as such, or a transformer's, written and read
// again, is the same. The first byte says which network.
#include "base/check.h"
#include "core/model/clip_text.h"
#include "core/model/decoder_architecture.h"
#include "core/model/sd3.h"
#include "tests/fuzz/bytes_input.h"

namespace {

template <typename Params>
void CheckRefusal(const absl::StatusOr<Params>& params) {
  if (params.ok()) return;
  OXBOW_CHECK(absl::IsInvalidArgument(params.status())) << params.status().ToString();
}

void CheckTransformer(const std::string& text) {
  using namespace oxbow::model;  // NOLINT: a file of one function.
  const auto params = ParseSd3Config(text);
  CheckRefusal(params);
  if (!params.ok()) return;
  const std::string written = Sd3ConfigJson(*params);
  const auto again = ParseSd3Config(written);
  OXBOW_CHECK(again.ok()) << again.status().ToString();
  OXBOW_CHECK(Sd3ConfigJson(*again) == written) << written;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  if (size == 0) return 0;
  const std::string text(fuzz::Text(data + 1, size - 1));
  switch (data[0] % 3) {
    case 0:
      CheckTransformer(text);
      break;
    case 1:
      CheckRefusal(model::DecoderClassOf(text));
      break;
    default:
      CheckRefusal(model::ParseClipTextConfig(text));
  }
  return 0;
}
