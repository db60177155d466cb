// SPDX-License-Identifier: Apache-2.0
// `oxbow certificates DIR`: an authority, and the certificates of a fleet.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::cli {

struct FleetCertificates {
  std::string fleet = "oxbow";       // Also the DNS name in each, for --tls-name.
  std::vector<std::string> hosts;    // More DNS names and IP addresses, in each.
  std::vector<std::string> members;  // "learner", "worker/gpu-a"; empty: every role, and `all`.
  int days = 90;
  int authority_days = 3650;
  bool readable = false;  // Keys for everybody, not for the owner alone; the folder protects them.
};

// Makes ca.crt and ca.key in `directory` unless they are there. Then makes or renews, for each
// member, MEMBER/ca.crt, tls.crt and tls.key; '/' in a member's name becomes '-' in its folder's.
// `all` is a certificate with every role, for the processes of one machine: it has that machine's
// own names, so that no --tls-name is needed. Returns the folders.
// kInvalidArgument for a name that is no member's or host's; kFailedPrecondition if the authority
// that is there cannot be used.
absl::StatusOr<std::vector<std::filesystem::path>> WriteCertificates(
    const std::filesystem::path& directory, const FleetCertificates& wanted);

}  // namespace oxbow::cli
