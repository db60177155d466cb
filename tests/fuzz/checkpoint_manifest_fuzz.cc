// SPDX-License-Identifier: Apache-2.0
// For any text: a checkpoint's manifest is refused as damaged, or written again it is read as the
// same. The hash of the text is written into it first, because mutations would never get past it.
#include "base/check.h"
#include "base/sha256.h"
#include "services/learner/checkpoint/checkpoint_manifest.h"
#include "tests/fuzz/bytes_input.h"

namespace {

// Where the manifest says `"sha256": "<64 digits>"` at its top, as ManifestText writes it.
std::string WithHash(std::string text) {
  constexpr std::string_view kKey = "\n  \"sha256\": \"";
  const size_t at = text.find(kKey);
  if (at == text.npos || text.size() < at + kKey.size() + 64) return text;
  text.replace(at + kKey.size(), 64, 64, '0');
  return text.replace(at + kKey.size(), 64, oxbow::Sha256Hex(text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow::learner;  // NOLINT: a file of one function.
  const auto manifest = ParseManifest(WithHash(std::string(oxbow::fuzz::Text(data, size))));
  if (!manifest.ok()) {
    OXBOW_CHECK(absl::IsDataLoss(manifest.status())) << manifest.status().ToString();
    return 0;
  }
  for (const auto& [name, digest] : manifest->files) {
    OXBOW_CHECK(!name.empty() && name.find('/') == name.npos && name != "..") << name;
  }
  const std::string written = ManifestText(*manifest);
  const auto again = ParseManifest(written);
  OXBOW_CHECK(again.ok()) << again.status().ToString();
  OXBOW_CHECK(ManifestText(*again) == written) << written;
  return 0;
}
