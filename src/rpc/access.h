// SPDX-License-Identifier: Apache-2.0
// Decides calls between processes with TLS: by the role table, the fleet and the list of revoked
// certificates. Both sides decide: a server about its caller, a caller about the server that
// answers. Every refusal is counted (oxbow_rpc_refused_total) and logged with the peer's identity.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "rpc/identity.h"
#include "rpc/revocation_list.h"

namespace oxbow::rpc {

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
