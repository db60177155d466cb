// SPDX-License-Identifier: Apache-2.0
// A certificate authority for one test, created during the test: no private key is in the
// repository.
#pragma once

#include <filesystem>
#include <string>

#include "absl/time/time.h"
#include "rpc/certificate_authority.h"

namespace oxbow::testing {

// "DNS:oxbow,URI:oxbow://oxbow/learner,...": a DNS name and every role of a fleet.
std::string NamesWithRoles(const std::string& dns = "oxbow", const std::string& fleet = "oxbow");

class Authority {
 public:
  explicit Authority(const std::string& common_name);

  struct Issue {
    std::string names = NamesWithRoles();  // In OpenSSL's form.
    absl::Duration starts = -absl::Hours(1);
    absl::Duration ends = absl::Hours(1);  // Both relative to now.
  };
  // Writes ca.crt, tls.crt and tls.key into the directory, each atomically.
  void Write(const std::filesystem::path& directory, const Issue& issue) const;

 private:
  rpc::CertificateAuthority authority_;
};

}  // namespace oxbow::testing
