// SPDX-License-Identifier: Apache-2.0
// A small certificate authority: P-256 keys, one self-signed authority that issues certificates for
// servers and callers directly. For `oxbow certificates` and tests; a cluster has its own tools.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::rpc {

struct KeyedCertificate {
  std::string certificate;  // PEM.
  std::string key;          // PEM, without passphrase.
};

class CertificateAuthority {
 public:
  // A new authority, valid from an hour ago to `ends` from now.
  static CertificateAuthority Create(const std::string& common_name, absl::Duration ends);
  // kInvalidArgument unless both are PEM, belong together and the certificate is an authority's.
  static absl::StatusOr<CertificateAuthority> Open(const KeyedCertificate& pem);
  ~CertificateAuthority();
  CertificateAuthority(CertificateAuthority&&) noexcept;

  struct Request {
    std::string common_name;
    std::string names;  // In OpenSSL's form: "DNS:oxbow,IP:127.0.0.1,URI:oxbow://oxbow/learner".
    absl::Duration starts = -absl::Hours(1);  // Both relative to now.
    absl::Duration ends = absl::Hours(1);
  };
  // A certificate with a key of its own and a random serial number. kInvalidArgument for names that
  // OpenSSL does not take.
  absl::StatusOr<KeyedCertificate> Issue(const Request& request) const;

  KeyedCertificate Pem() const;

 private:
  struct Keys;
  explicit CertificateAuthority(std::unique_ptr<Keys> keys);
  std::unique_ptr<Keys> keys_;
};

}  // namespace oxbow::rpc
