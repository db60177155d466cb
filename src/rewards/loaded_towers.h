// SPDX-License-Identifier: Apache-2.0
// The CLIP models that rewards of this process hold: equal ones are loaded once.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "rewards/clip_towers.h"

namespace oxbow::rewards {

// Thread-safe.
class LoadedTowers {
 public:
  // Those that someone holds, if they are of this directory or of one with the same identity
  // (ClipTowers::identity), on the same device; else they are loaded. Errors are those of
  // ClipTowers::Open.
  absl::StatusOr<std::shared_ptr<ClipTowers>> Get(const std::filesystem::path& directory,
                                                  const ClipTowersOptions& options);

 private:
  using Key =
      std::pair<std::string, std::string>;  // Directories with type, or an identity; device.
  absl::Mutex mutex_;
  std::map<Key, std::weak_ptr<ClipTowers>> by_directory_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, std::weak_ptr<ClipTowers>> by_identity_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::rewards
