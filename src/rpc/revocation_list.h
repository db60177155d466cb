// SPDX-License-Identifier: Apache-2.0
// Certificates that are no longer believed although their authority vouches for them: a text file,
// one certificate a line, read again whenever it changes.
//
//   # a comment
//   oxbow://FLEET/worker/gpu-7     every certificate with this identity
//   4F6B0C                         a serial number in hexadecimal; `serial=4F6B0C` and colons are
//                                  fine, as `openssl x509 -serial` prints them
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "rpc/identity.h"

namespace oxbow::rpc {

// URIs, and serial numbers as Holder has them. kInvalidArgument with the number of a line that is
// neither.
absl::StatusOr<absl::flat_hash_set<std::string>> ParseRevocations(std::string_view text);

// Thread-safe.
class RevocationList {
 public:
  // Reads the file; an empty path is a list without entries. Looks for a change at most every
  // `reload_every`, when it is asked. kNotFound for a missing file; kInvalidArgument as
  // ParseRevocations.
  static absl::StatusOr<std::unique_ptr<RevocationList>> Open(const std::filesystem::path& path,
                                                              absl::Duration reload_every,
                                                              const Clock& clock);

  // While the file cannot be read, the last good content counts, and an error is logged.
  bool Has(const Holder& holder) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  RevocationList(std::filesystem::path path, absl::Duration reload_every, const Clock& clock)
      : path_(std::move(path)), reload_every_(reload_every), clock_(clock) {}
  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::filesystem::path path_;
  const absl::Duration reload_every_;
  const Clock& clock_;
  absl::Mutex mutex_;
  absl::Duration looked_ ABSL_GUARDED_BY(mutex_);
  std::string text_ ABSL_GUARDED_BY(mutex_);
  bool readable_ ABSL_GUARDED_BY(mutex_) = true;
  absl::flat_hash_set<std::string> revoked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::rpc
