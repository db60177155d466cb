// SPDX-License-Identifier: Apache-2.0
// Decides calls between processes with TLS: by the role table, the fleet and the list of revoked
// certificates. Both sides decide: a server about its caller, a caller about the server that
// answers. Every refusal is counted (oxbow_rpc_refused_total) and logged with the peer's identity.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "rpc/identity.h"

namespace oxbow::rpc {

// Certificates that are no longer believed although their authority vouches for them: a text file,
// one certificate a line, read again whenever it changes.
//
//   # a comment
//   oxbow://FLEET/worker/gpu-7     every certificate with this identity
//   4F6B0C                         a serial number in hexadecimal; `serial=4F6B0C` and colons are
//                                  fine, as `openssl x509 -serial` prints them
//
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

// Thread-safe.
class Access {
 public:
  // `fleet` is the own one: peers of other fleets have no role here.
  Access(std::string fleet, std::unique_ptr<RevocationList> revoked)
      : fleet_(std::move(fleet)), revoked_(std::move(revoked)) {}

  // Whether the holder of a certificate may call or answer `method`. kPermissionDenied says who may
  // not do what. A certificate that cannot be read has no role.
  absl::Status MayCall(std::string_view method, const std::string& pem);
  absl::Status MayAnswer(std::string_view method, const std::string& pem);

  // Whether the holder may say that it is this worker; see rpc::MayBeWorker.
  absl::Status MayBeWorker(const std::string& pem, const std::string& worker_id);

  bool IsRevoked(const Holder& holder) { return revoked_->Has(holder); }
  // The error of a call, or of the rest of an open stream, whose caller is revoked.
  absl::Status RefuseRevoked(std::string_view method, const Holder& peer);

  // Certificates are parsed once and remembered.
  std::shared_ptr<const Holder> HolderOf(const std::string& pem) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status Decide(std::string_view method, const std::string& pem, bool calls);
  // Counts, logs and returns one refusal. Who repeats itself is logged ever more rarely.
  absl::Status Refuse(std::string_view method, const char* reason, const Holder& peer,
                      const std::string& message) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string fleet_;
  const std::unique_ptr<RevocationList> revoked_;
  absl::Mutex mutex_;
  // Shared: a call may go on with a holder that is forgotten here.
  absl::flat_hash_map<std::string, std::shared_ptr<const Holder>> holders_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, uint64_t> refusals_ ABSL_GUARDED_BY(mutex_);  // By who and what.
};

}  // namespace oxbow::rpc
