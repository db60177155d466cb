// SPDX-License-Identifier: Apache-2.0
#include "rpc/certificate_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "base/file.h"
#include "tests/testing/certificates.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::rpc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CertificateFilesTest : public ::testing::Test {
 protected:
  CertificateFilesTest() {
    authority_.Write(ours_, {.names = "DNS:oxbow,IP:127.0.0.1"});
    stranger_.Write(theirs_, {});
  }
  CertificateFiles Files() const {
    return {.ca = ours_ / "ca.crt", .cert = ours_ / "tls.crt", .key = ours_ / "tls.key"};
  }
  static absl::Status Check(const CertificateFiles& files, const std::string& name = "oxbow") {
    return CheckCertificateFiles(files, name, absl::Now()).status();
  }
  // Expects one line that names the flag, the file and the reason.
  static void ExpectRefused(const absl::Status& status, absl::StatusCode code,
                            const std::string& flag, const std::string& path,
                            const std::string& reason) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(flag), HasSubstr(path), HasSubstr(reason)));
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  }

  const testing::ScopedDirectory scratch_;
  const std::filesystem::path ours_ = scratch_.path() / "ours";
  const std::filesystem::path theirs_ = scratch_.path() / "theirs";
  const testing::Authority authority_{"ours"};
  const testing::Authority stranger_{"theirs"};
};

TEST_F(CertificateFilesTest, FittingFilesAreTaken) {
  const auto end = CheckCertificateFiles(Files(), "oxbow", absl::Now());
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_LT(absl::AbsDuration(*end - (absl::Now() + absl::Hours(1))), absl::Minutes(1));
  EXPECT_TRUE(Check(Files(), "").ok());
  // The old and the new authority in one file, as during an exchange of certificates.
  const std::string both = *ReadFile(theirs_ / "ca.crt") + *ReadFile(ours_ / "ca.crt");
  ASSERT_TRUE(WriteFileAtomically(ours_ / "both.crt", both).ok());
  CertificateFiles files = Files();
  files.ca = ours_ / "both.crt";
  EXPECT_TRUE(Check(files).ok()) << Check(files);
}

TEST_F(CertificateFilesTest, HostsThatCallersCannotFindAreRefusedWithWhatToPass) {
  EXPECT_TRUE(CheckServesHost(Files().cert, "127.0.0.1").ok());
  EXPECT_TRUE(CheckServesHost(Files().cert, "oxbow").ok());
  for (const char* host : {"127.0.0.2", "::1", "oxbow.lab"}) {
    ExpectRefused(CheckServesHost(Files().cert, host), absl::StatusCode::kFailedPrecondition,
                  "--tls-cert", Files().cert, host);
    ExpectRefused(CheckServesHost(Files().cert, host), absl::StatusCode::kFailedPrecondition,
                  "--tls-cert", Files().cert, "--tls-name");
  }
}

// Promise: Unauthenticated callers are refused.
TEST_F(CertificateFilesTest, EachMistakeIsOneLineWithFlagFileAndReason) {
  constexpr auto kUnfit = absl::StatusCode::kFailedPrecondition;
  CertificateFiles files = Files();
  files.key = scratch_.path() / "none.key";
  ExpectRefused(Check(files), absl::StatusCode::kNotFound, "--tls-key", files.key, "cannot open");

  files = Files();
  files.ca = scratch_.path();
  ExpectRefused(Check(files), kUnfit, "--tls-ca", files.ca, "not a file");

  files = Files();
  files.cert = files.key;  // A private key is not a certificate.
  ExpectRefused(Check(files), kUnfit, "--tls-cert", files.cert, "no certificate in PEM");

  files = Files();
  files.key = files.ca;
  ExpectRefused(Check(files), kUnfit, "--tls-key", files.key, "no private key in PEM");

  files = Files();
  files.key = theirs_ / "tls.key";
  ExpectRefused(Check(files), kUnfit, "--tls-key", files.key, "not the key of --tls-cert");

  files = Files();
  files.ca = theirs_ / "ca.crt";
  ExpectRefused(Check(files), kUnfit, "--tls-cert", files.cert, files.ca);

  ExpectRefused(Check(Files(), "another"), kUnfit, "--tls-cert", Files().cert,
                "no DNS name another (--tls-name)");
}

TEST_F(CertificateFilesTest, CertificatesOfAnotherTimeAreRefused) {
  authority_.Write(ours_, {.starts = absl::Hours(1), .ends = absl::Hours(2)});
  ExpectRefused(Check(Files()), absl::StatusCode::kFailedPrecondition, "--tls-cert", Files().cert,
                "not yet valid");
  EXPECT_TRUE(CheckCertificateFiles(Files(), "", absl::Now() + absl::Minutes(90)).ok());
  ExpectRefused(CheckCertificateFiles(Files(), "", absl::Now() + absl::Hours(3)).status(),
                absl::StatusCode::kFailedPrecondition, "--tls-cert", Files().cert, "expired");
}

}  // namespace
}  // namespace oxbow::rpc
