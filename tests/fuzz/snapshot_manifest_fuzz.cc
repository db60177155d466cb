// SPDX-License-Identifier: Apache-2.0
// For any bytes as a manifest of weights: it is refused, or its chunks fit what it declares. The
// manifest's own hash is written first, because mutations would never get past it.
#include <google/protobuf/stubs/logging.h>

#include "base/check.h"
#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/snapshot.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  [[maybe_unused]] static const auto loud = google::protobuf::SetLogHandler(nullptr);
  constexpr uint64_t kBytesMax = 1 << 24;
  v1::SnapshotManifest manifest;
  if (!manifest.ParseFromArray(data, static_cast<int>(size))) return 0;
  const auto all = [](const std::string&) { return true; };
  if (size % 2 == 0) manifest.set_sha256(weights::HashTensors(manifest, all));
  if (!weights::CheckManifest(manifest, kBytesMax).ok()) return 0;
  uint64_t bytes = 0;
  for (const auto& chunk : weights::ChunksOf(manifest)) bytes += chunk.bytes;
  OXBOW_CHECK(bytes <= kBytesMax);
  return 0;
}
