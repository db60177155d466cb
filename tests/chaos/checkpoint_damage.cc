// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/checkpoint_damage.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/learner/checkpoint/checkpoint_store.h"

namespace oxbow::chaos {
namespace {

namespace fs = std::filesystem;

constexpr char kWeights[] = "weights.safetensors";
constexpr uintmax_t kHuge = (uintmax_t{4} << 30) + 8;

absl::Status NoCheckpoint(const fs::path& directory) {
  return absl::NotFoundError(absl::StrCat("no checkpoint: ", directory.string()));
}

}  // namespace

std::optional<uint64_t> NewestCheckpoint(const fs::path& directory) {
  std::optional<uint64_t> newest;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    uint64_t steps = 0;
    if (!name.starts_with("step_") || !absl::SimpleAtoi(name.substr(5), &steps)) continue;
    newest = std::max(newest.value_or(0), steps);
  }
  return newest;
}

absl::StatusOr<uint64_t> FlipBit(const fs::path& directory, bool odd) {
  const std::optional<uint64_t> steps = NewestCheckpoint(directory);
  if (!steps.has_value()) return NoCheckpoint(directory);
  const fs::path file =
      directory / learner::CheckpointName(*steps) / (odd ? kWeights : "manifest.json");
  std::error_code error;
  const auto middle = static_cast<std::streamoff>(fs::file_size(file, error) / 2);
  std::fstream content(file, std::ios::in | std::ios::out | std::ios::binary);
  if (error || !content.seekg(middle)) return NoCheckpoint(directory);
  const int byte = content.get();
  content.seekp(middle).put(static_cast<char>(byte ^ 1));
  if (!content.flush()) return NoCheckpoint(directory);
  return *steps;
}

absl::StatusOr<uint64_t> GrowBeyond4Gib(const fs::path& directory) {
  const std::optional<uint64_t> steps = NewestCheckpoint(directory);
  if (!steps.has_value()) return NoCheckpoint(directory);
  std::error_code error;
  fs::resize_file(directory / learner::CheckpointName(*steps) / kWeights, kHuge, error);
  if (error) return absl::PermissionDeniedError(absl::StrCat("cannot grow: ", error.message()));
  return *steps;
}

void SetAside(const fs::path& directory, uint64_t committed_steps) {
  const std::string name = learner::CheckpointName(committed_steps);
  std::error_code error;  // Then the next start says what is wrong.
  fs::rename(directory / name, directory / absl::StrCat("damaged_", name), error);
  // It was the only one, and the run may begin again.
  if (!NewestCheckpoint(directory)) fs::remove(directory.parent_path() / "trained_to", error);
}

}  // namespace oxbow::chaos
