// SPDX-License-Identifier: Apache-2.0
// For any CURRENT file and any name of a checkpoint: a replay store's directory finds a database
// inside itself, or refuses. Both are divided by byte 30.
#include "absl/strings/match.h"
#include "base/check.h"
#include "services/buffer/replay_directory.h"
#include "tests/fuzz/tokenizer_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const fuzz::Scratch scratch;
  std::filesystem::create_directories(scratch.path() / "live-000001");
  std::filesystem::create_directories(scratch.path() / "checkpoints" / "step_5.000004");
  const auto parts = fuzz::Parts(data, size, 2);
  scratch.Write("CURRENT", parts[0]);
  const auto directory = buffer::ReplayDirectory::Open(scratch.path());
  OXBOW_CHECK(directory.ok()) << directory.status().ToString();
  const auto inside = [&](const std::filesystem::path& path) {
    return absl::StartsWith(path.lexically_normal().string(), scratch.path().string() + "/");
  };
  if (const auto live = (*directory)->FindLive(); live.ok()) {
    OXBOW_CHECK(inside(live->path)) << live->path;
  }
  if (const auto found = (*directory)->FindCheckpoint(parts[1]); found.ok()) {
    OXBOW_CHECK(inside(*found)) << *found;
  }
  if (const auto next = (*directory)->NextCheckpoint(parts[1]); next.ok()) {
    OXBOW_CHECK(inside(*next) && !std::filesystem::exists(*next)) << *next;
  }
  return 0;
}
