// SPDX-License-Identifier: Apache-2.0
// The three PEM files of mutual TLS, checked before any connection: a mistake in them is one line
// at the start of a process, not a handshake that fails without a visible reason.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::rpc {

struct CertificateFiles {
  std::string ca;    // --tls-ca: trusted authorities, one or several (for example old and new).
  std::string cert;  // --tls-cert: this process's certificate, followed by intermediates.
  std::string key;   // --tls-key: its private key, unencrypted.
};

// Returns when the certificate expires. kNotFound for a missing file. kFailedPrecondition for a
// file that cannot be read or is not PEM, a key that belongs to another certificate, or a
// certificate that none of `ca` has issued, that is not valid at `now`, or that does not have the
// DNS name `name` (unless empty). The message names flag and path.
absl::StatusOr<absl::Time> CheckCertificateFiles(const CertificateFiles& files,
                                                 const std::string& name, absl::Time now);

// The first DNS name, or else address, of the certificate in this file; empty if it has none.
std::string ANameIn(const std::string& cert);

// OK if callers of `host` (an address or a DNS name) find it in the certificate of this file.
// kFailedPrecondition otherwise; the message says what to pass.
absl::Status CheckServesHost(const std::string& cert, const std::string& host);

}  // namespace oxbow::rpc
