// SPDX-License-Identifier: Apache-2.0
// The identities that a certificate speaks for: URIs among its alternative names,
//
//   oxbow://FLEET/ROLE          oxbow://FLEET/worker/ID
//
// FLEET is the name of one deployment; ROLE is learner (all ranks), worker, buffer, reward or
// operator (people and tools). An ID binds a worker's certificate to workers of that name. A
// certificate may have several roles of one fleet; other names and URIs in it are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::rpc {

enum class Role { kLearner, kWorker, kBuffer, kReward, kOperator };
inline constexpr Role kEveryRole[] = {Role::kLearner, Role::kWorker, Role::kBuffer, Role::kReward,
                                      Role::kOperator};

const char* NameOf(Role role);

// A set of roles.
class Roles {
 public:
  constexpr Roles() = default;
  constexpr Roles(Role role) : bits_(1U << static_cast<unsigned>(role)) {}  // NOLINT: a set of one.
  constexpr bool Has(Role role) const { return (bits_ & Roles(role).bits_) != 0; }
  constexpr bool Meets(Roles other) const { return (bits_ & other.bits_) != 0; }
  constexpr bool operator==(const Roles&) const = default;
  friend constexpr Roles operator|(Roles a, Roles b) {
    a.bits_ |= b.bits_;
    return a;
  }

 private:
  uint32_t bits_ = 0;
};

// "learner or operator"; "nobody" for none.
std::string NamesOf(Roles roles);

struct Identity {
  std::string fleet;
  Role role = Role::kOperator;
  std::string worker;  // A worker's ID; empty: any.

  bool operator==(const Identity&) const = default;
};

// kInvalidArgument unless `uri` has one of the forms above. Fleet and ID consist of letters,
// digits, '-', '_' and '.'.
absl::StatusOr<Identity> ParseIdentity(const std::string& uri);
std::string UriOf(const Identity& identity);

// True for a worker whose ID is empty, is `worker_id`, or begins `worker_id` and is followed by
// '-', '.' or '/': one certificate can serve the workers gpu-a-1 and gpu-a-2, but not gpu-ab.
bool MayBeWorker(const Identity& identity, const std::string& worker_id);

// Facts of the holder of a certificate.
struct Holder {
  std::vector<Identity> identities;
  std::string serial;  // Upper-case hexadecimal digits without leading zeros.

  Roles RolesIn(const std::string& fleet) const;
  // Its identities, or its serial number if it has none; for messages.
  std::string Name() const;
};

// Reads the first certificate of a PEM text. kInvalidArgument if there is none, or if it has a URI
// that begins with oxbow:// and has none of the forms above.
absl::StatusOr<Holder> HolderOf(std::string_view pem);

// Whether this process may use its own certificate: it has identities, all of one fleet, and this
// is `fleet` unless that is empty. Returns the fleet. kFailedPrecondition with what is wrong.
absl::StatusOr<std::string> FleetOf(const Holder& own, const std::string& fleet);

}  // namespace oxbow::rpc
