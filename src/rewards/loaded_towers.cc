// SPDX-License-Identifier: Apache-2.0
#include "rewards/loaded_towers.h"

#include <ATen/ATen.h>

#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::rewards {

absl::StatusOr<std::shared_ptr<ClipTowers>> LoadedTowers::Get(
    const std::filesystem::path& directory, const ClipTowersOptions& options) {
  std::error_code ignored;
  const std::string device = options.device.str();
  const Key key{absl::StrCat(c10::toString(options.dtype), " ",
                             std::filesystem::weakly_canonical(directory, ignored).string(), " ",
                             options.tokenizer.string()),
                device};
  absl::MutexLock lock(&mutex_);  // Held while a model loads: another reward may want the same.
  if (auto held = by_directory_[key].lock()) return held;
  const auto same = [&](const std::string& identity) {
    mutex_.AssertHeld();
    return by_identity_[{identity, device}].lock();
  };
  OXBOW_ASSIGN_OR_RETURN(std::shared_ptr<ClipTowers> towers,
                         ClipTowers::Open(directory, options, same));
  by_directory_[key] = towers;
  by_identity_[{towers->identity(), device}] = towers;
  return towers;
}

}  // namespace oxbow::rewards
