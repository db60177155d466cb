// The three PEM files behind mutual TLS, judged before anybody connects: a mistake in them is one
// line at the start of a process, not a handshake that fails for no visible reason.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::rpc {

struct CertificateFiles {
  std::string ca;    // --tls-ca: authorities to believe, one or several (old and new, say).
  std::string cert;  // --tls-cert: what this process shows, with intermediates after it.
  std::string key;   // --tls-key: its private key, not encrypted.
};

// When the certificate ends. kNotFound for a file that is not there; kFailedPrecondition for one
// that cannot be read or is no PEM, a key of another certificate, a certificate that none of `ca`
// has issued, that is not valid at `now`, or that lacks the DNS name `name` (unless empty). The
// message names flag and path.
absl::StatusOr<absl::Time> CheckCertificateFiles(const CertificateFiles& files,
                                                 const std::string& name, absl::Time now);

}  // namespace oxbow::rpc
