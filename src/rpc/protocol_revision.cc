// SPDX-License-Identifier: Apache-2.0
#include "rpc/protocol_revision.h"

#include "absl/strings/str_cat.h"
#include "base/build_version.h"

namespace oxbow::rpc {
namespace {

std::string BuildText(const std::string& version) {
  return version.empty() ? "" : absl::StrCat(" (oxbow ", version, ")");
}

}  // namespace

absl::Status CheckRevision(const std::string& peer, uint32_t revision, const std::string& version,
                           const std::string& self) {
  if (revision == kProtocolRevision) return absl::OkStatus();
  const std::string theirs = revision == 0
                                 ? "the protocol from before revisions"
                                 : absl::StrCat("revision ", revision, " of the protocol");
  return absl::InvalidArgumentError(absl::StrCat(
      peer, BuildText(version), " speaks ", theirs, ", ", self, BuildText(BuildVersion()),
      " revision ", kProtocolRevision, ": run one version of oxbow in all processes of a run"));
}

std::string OtherBuildText(const std::string& peer, const std::string& version,
                           const std::string& self) {
  if (version.empty() || version == BuildVersion()) return "";
  return absl::StrCat(peer, " is oxbow ", version, ", ", self, " oxbow ", BuildVersion());
}

}  // namespace oxbow::rpc
