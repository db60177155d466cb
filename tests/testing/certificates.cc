// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/certificates.h"

#include "base/check.h"
#include "base/file.h"
#include "rpc/identity.h"

namespace oxbow::testing {

std::string NamesWithRoles(const std::string& dns, const std::string& fleet) {
  std::string names = "DNS:" + dns;
  for (const rpc::Role role : rpc::kEveryRole) names += ",URI:" + rpc::UriOf({fleet, role, ""});
  return names;
}

Authority::Authority(const std::string& common_name)
    : authority_(rpc::CertificateAuthority::Create(common_name, absl::Hours(24))) {}

void Authority::Write(const std::filesystem::path& directory, const Issue& issue) const {
  const rpc::KeyedCertificate made = authority_
                                         .Issue({.common_name = "member",
                                                 .names = issue.names,
                                                 .starts = issue.starts,
                                                 .ends = issue.ends})
                                         .value();
  const auto write = [&](const char* name, const std::string& content) {
    const absl::Status written = WriteFileAtomically(directory / name, content);
    OXBOW_CHECK(written.ok()) << written.ToString();
  };
  std::filesystem::create_directories(directory);
  write("ca.crt", authority_.Pem().certificate);
  write("tls.crt", made.certificate);
  write("tls.key", made.key);
}

}  // namespace oxbow::testing
