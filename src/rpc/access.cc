// SPDX-License-Identifier: Apache-2.0
#include "rpc/access.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "rpc/role_table.h"
#include "telemetry/metrics.h"

namespace oxbow::rpc {
namespace {

constexpr size_t kRememberedMax = 4096;

}  // namespace

std::shared_ptr<const Holder> Access::HolderOf(const std::string& pem) {
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = holders_.find(pem); found != holders_.end()) return found->second;
  }
  absl::StatusOr<Holder> parsed = rpc::HolderOf(pem);
  auto holder = std::make_shared<const Holder>(parsed.ok() ? *std::move(parsed) : Holder());
  absl::MutexLock lock(&mutex_);
  if (holders_.size() >= kRememberedMax) holders_.clear();
  return holders_.emplace(pem, std::move(holder)).first->second;
}

absl::Status Access::MayCall(std::string_view method, const std::string& pem) {
  return Decide(method, pem, /*calls=*/true);
}

absl::Status Access::MayAnswer(std::string_view method, const std::string& pem) {
  return Decide(method, pem, /*calls=*/false);
}

absl::Status Access::Decide(std::string_view method, const std::string& pem, bool calls) {
  const std::shared_ptr<const Holder> peer = HolderOf(pem);
  if (IsRevoked(*peer)) return RefuseRevoked(method, *peer);
  const RoleRow* row = RowOf(method);
  if (row == nullptr) {
    return Refuse(method, "method", *peer,
                  absl::StrCat("no role may call this: ", std::string(method)));
  }
  const Roles roles = peer->RolesIn(fleet_);
  if (roles == Roles()) {
    return Refuse(method, "fleet", *peer,
                  absl::StrCat("the certificate has no role in the fleet ", fleet_,
                               " (oxbow certificates makes some): ", peer->Name()));
  }
  const Roles wanted = calls ? row->callers : row->servers;
  if (roles.Meets(wanted)) return absl::OkStatus();
  return Refuse(method, "role", *peer,
                absl::StrCat(peer->Name(), " may not ", calls ? "call " : "answer ",
                             std::string(method), ", only ", NamesOf(wanted), " may"));
}

absl::Status Access::RefuseRevoked(std::string_view method, const Holder& peer) {
  return Refuse(method, "revoked", peer,
                absl::StrCat("the certificate is revoked (--tls-revoked): ", peer.Name(),
                             ", serial number ", peer.serial));
}

absl::Status Access::Refuse(std::string_view method, const char* reason, const Holder& peer,
                            const std::string& message) {
  const std::string what = RowOf(method) == nullptr ? "unknown" : std::string(method.substr(1));
  telemetry::RefusedCalls::This().Add(what, reason);
  uint64_t times = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (refusals_.size() >= kRememberedMax) refusals_.clear();
    times = ++refusals_[absl::StrCat(peer.Name(), peer.serial, what, reason)];
  }
  if ((times & (times - 1)) == 0) {
    OXBOW_LOG(Warning) << "call refused" << Field("peer", peer.Name())
                       << Field("serial", peer.serial) << Field("method", what)
                       << Field("reason", message) << Field("times", times);
  }
  return absl::PermissionDeniedError(message);
}

absl::Status Access::MayBeWorker(const std::string& pem, const std::string& worker_id) {
  const std::shared_ptr<const Holder> peer = HolderOf(pem);
  const bool may =
      std::any_of(peer->identities.begin(), peer->identities.end(), [&](const Identity& identity) {
        return identity.fleet == fleet_ && rpc::MayBeWorker(identity, worker_id);
      });
  if (may) return absl::OkStatus();
  return Refuse("", "worker_id", *peer,
                absl::StrCat(peer->Name(), " may not speak for the worker ", worker_id));
}

}  // namespace oxbow::rpc
