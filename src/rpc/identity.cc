// SPDX-License-Identifier: Apache-2.0
#include "rpc/identity.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "rpc/openssl_handles.h"

namespace oxbow::rpc {
namespace {

constexpr char kScheme[] = "oxbow://";
constexpr const char* kRoleNames[] = {"learner", "worker", "buffer", "reward", "operator"};
static_assert(std::size(kRoleNames) == std::size(kEveryRole));  // In the order of Role.

bool IsWord(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

std::string SerialOf(const X509& certificate) {
  BIGNUM* number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(&certificate), nullptr);
  char* digits = BN_bn2hex(number);
  const std::string_view all = digits;
  std::string serial(all.substr(std::min(all.find_first_not_of('0'), all.size() - 1)));
  OPENSSL_free(digits);
  BN_free(number);
  return serial;
}

// The URIs among the certificate's alternative names.
std::vector<std::string> UrisOf(const X509& certificate) {
  std::vector<std::string> uris;
  const GeneralNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return uris;
}

}  // namespace

const char* NameOf(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

std::string NamesOf(Roles roles) {
  std::vector<std::string> names;
  for (const Role role : kEveryRole) {
    if (roles.Has(role)) names.emplace_back(NameOf(role));
  }
  return names.empty() ? "nobody" : absl::StrJoin(names, " or ");
}

absl::StatusOr<Identity> ParseIdentity(const std::string& uri) {
  const auto wrong = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("not oxbow://FLEET/ROLE or oxbow://FLEET/worker/ID with a role of learner, "
                     "worker, buffer, reward and operator: ",
                     uri));
  };
  if (!absl::StartsWith(uri, kScheme)) return wrong();
  const std::vector<std::string> parts = absl::StrSplit(uri.substr(std::size(kScheme) - 1), '/');
  if (parts.size() < 2 || parts.size() > 3 || !std::all_of(parts.begin(), parts.end(), IsWord)) {
    return wrong();
  }
  for (const Role role : kEveryRole) {
    if (parts[1] != NameOf(role)) continue;
    if (parts.size() == 3 && role != Role::kWorker) return wrong();
    return Identity{parts[0], role, parts.size() == 3 ? parts[2] : ""};
  }
  return wrong();
}

std::string UriOf(const Identity& identity) {
  return absl::StrCat(kScheme, identity.fleet, "/", NameOf(identity.role),
                      identity.worker.empty() ? "" : "/", identity.worker);
}

bool MayBeWorker(const Identity& identity, const std::string& worker_id) {
  if (identity.role != Role::kWorker) return false;
  const std::string& bound = identity.worker;
  if (bound.empty() || bound == worker_id) return true;
  return absl::StartsWith(worker_id, bound) &&
         std::string_view("-./").find(worker_id[bound.size()]) != std::string_view::npos;
}

Roles Holder::RolesIn(const std::string& fleet) const {
  Roles roles;
  for (const Identity& identity : identities) {
    if (identity.fleet == fleet) roles = roles | identity.role;
  }
  return roles;
}

std::string Holder::Name() const {
  if (identities.empty()) return absl::StrCat("certificate ", serial);
  return absl::StrJoin(identities, ",", [](std::string* out, const Identity& identity) {
    out->append(UriOf(identity));
  });
}

absl::StatusOr<Holder> HolderOf(std::string_view pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) return absl::InvalidArgumentError("no certificate in PEM");
  Holder holder{.serial = SerialOf(*certificate)};
  for (const std::string& uri : UrisOf(*certificate)) {
    if (!absl::StartsWith(uri, kScheme)) continue;
    OXBOW_ASSIGN_OR_RETURN(Identity identity, ParseIdentity(uri));
    holder.identities.push_back(std::move(identity));
  }
  return holder;
}

absl::StatusOr<std::string> FleetOf(const Holder& own, const std::string& fleet) {
  if (own.identities.empty()) {
    return absl::FailedPreconditionError(
        "no role in it (a URI oxbow://FLEET/ROLE): make certificates with `oxbow certificates`, or "
        "give every process --tls-roles off");
  }
  for (const Identity& identity : own.identities) {
    if (identity.fleet != own.identities.front().fleet) {
      return absl::FailedPreconditionError(
          absl::StrCat("roles of more than one fleet in it: ", own.Name()));
    }
  }
  const std::string& found = own.identities.front().fleet;
  if (!fleet.empty() && found != fleet) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is of the fleet ", found, ", not of ", fleet, " (--tls-name)"));
  }
  return found;
}

}  // namespace oxbow::rpc
