// SPDX-License-Identifier: Apache-2.0
#include "rpc/access.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/role_table.h"
#include "telemetry/metrics.h"

namespace oxbow::rpc {
namespace {

constexpr uint64_t kListBytesMax = 4 << 20;

// A serial number as Holder has it; empty if `text` is none.
std::string SerialIn(absl::string_view text) {
  absl::ConsumePrefix(&text, "serial=");
  std::string digits = absl::AsciiStrToUpper(absl::StrReplaceAll(text, {{":", ""}}));
  const bool hexadecimal = std::all_of(digits.begin(), digits.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c));
  });
  if (digits.empty() || !hexadecimal) return "";
  return digits.substr(std::min(digits.find_first_not_of('0'), digits.size() - 1));
}

constexpr size_t kRememberedMax = 4096;

}  // namespace

absl::StatusOr<absl::flat_hash_set<std::string>> ParseRevocations(std::string_view text) {
  absl::flat_hash_set<std::string> revoked;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const absl::StatusOr<Identity> identity = ParseIdentity(std::string(line));
    std::string entry = identity.ok() ? UriOf(*identity) : SerialIn(line);
    if (entry.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, " is neither a serial number nor oxbow://FLEET/ROLE: ", line));
    }
    revoked.insert(std::move(entry));
  }
  return revoked;
}

absl::StatusOr<std::unique_ptr<RevocationList>> RevocationList::Open(
    const std::filesystem::path& path, absl::Duration reload_every, const Clock& clock) {
  std::unique_ptr<RevocationList> list(new RevocationList(path, reload_every, clock));
  if (path.empty()) return list;
  absl::MutexLock lock(&list->mutex_);
  list->looked_ = clock.Now();
  OXBOW_RETURN_IF_ERROR(list->Load());
  return list;
}

absl::Status RevocationList::Load() {
  OXBOW_ASSIGN_OR_RETURN(std::string text, ReadFile(path_, kListBytesMax));
  if (text == text_) return absl::OkStatus();
  absl::StatusOr<absl::flat_hash_set<std::string>> revoked = ParseRevocations(text);
  if (!revoked.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(revoked.status().message()), ": ", path_.string()));
  }
  revoked_ = *std::move(revoked);
  text_ = std::move(text);
  OXBOW_LOG(Info) << "list of revoked certificates read" << Field("entries", revoked_.size())
                  << Field("path", path_.string());
  return absl::OkStatus();
}

bool RevocationList::Has(const Holder& holder) {
  if (path_.empty()) return false;
  absl::MutexLock lock(&mutex_);
  if (const absl::Duration now = clock_.Now(); now - looked_ >= reload_every_) {
    looked_ = now;
    const absl::Status loaded = Load();
    if (!loaded.ok() && readable_) {
      OXBOW_LOG(Error) << "the list of revoked certificates cannot be read; its last content counts"
                       << Field("reason", loaded.message());
    }
    readable_ = loaded.ok();
  }
  return revoked_.contains(holder.serial) ||
         std::any_of(holder.identities.begin(), holder.identities.end(),
                     [this](const Identity& identity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                       return revoked_.contains(UriOf(identity));
                     });
}

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
