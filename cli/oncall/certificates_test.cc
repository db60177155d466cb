// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/time/clock.h"
#include "base/file.h"
#include "rpc/certificate_files.h"
#include "rpc/identity.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

fs::perms ModeOf(const fs::path& path) { return fs::status(path).permissions(); }

rpc::Holder HolderIn(const fs::path& folder) {
  return rpc::HolderOf(ReadFile(folder / "tls.crt").value()).value();
}

absl::StatusOr<absl::Time> Check(const fs::path& folder, const std::string& name) {
  return rpc::CheckCertificateFiles(
      {.ca = folder / "ca.crt", .cert = folder / "tls.crt", .key = folder / "tls.key"}, name,
      absl::Now());
}

TEST(CertificatesTest, EachRoleHasAWorkingCertificateOfItsOwn) {
  const testing::ScopedDirectory scratch;
  const auto folders = WriteCertificates(scratch.path() / "tls", {.fleet = "lab", .days = 30});
  ASSERT_TRUE(folders.ok()) << folders.status();
  ASSERT_EQ(folders->size(), std::size(rpc::kEveryRole) + 1);
  std::set<std::string> serials;
  for (const fs::path& folder : *folders) {
    const auto end = Check(folder, "lab");
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_LT(absl::AbsDuration(*end - absl::Now() - absl::Hours(24 * 30)), absl::Minutes(1));
    const rpc::Holder holder = HolderIn(folder);
    EXPECT_EQ(rpc::FleetOf(holder, "lab").value(), "lab");
    EXPECT_TRUE(serials.insert(holder.serial).second);
    EXPECT_EQ(ModeOf(folder / "tls.key"), static_cast<fs::perms>(0600));
    const std::string member = folder.filename();
    EXPECT_EQ(holder.identities.size(), member == "all" ? std::size(rpc::kEveryRole) : 1) << member;
    // The processes of one machine need no --tls-name.
    for (const char* host : {"127.0.0.1", "::1", "localhost"}) {
      EXPECT_EQ(rpc::CheckServesHost(folder / "tls.crt", host).ok(), member == "all") << member;
    }
    for (const rpc::Role role : rpc::kEveryRole) {
      EXPECT_EQ(holder.RolesIn("lab").Has(role), member == "all" || member == rpc::NameOf(role));
    }
  }
  EXPECT_EQ(ModeOf(scratch.path() / "tls" / "ca.key"), static_cast<fs::perms>(0600));
  EXPECT_EQ(ModeOf(scratch.path() / "tls"), fs::perms::owner_all);
}

TEST(CertificatesTest, ASecondCallRenewsUnderTheSameAuthority) {
  const testing::ScopedDirectory scratch;
  ASSERT_TRUE(WriteCertificates(scratch.path(), {}).ok());
  const std::string authority = *ReadFile(scratch.path() / "ca.crt");
  const std::string before = HolderIn(scratch.path() / "learner").serial;
  const auto folders = WriteCertificates(scratch.path(), {.hosts = {"10.0.0.7", "gpu.example.org"},
                                                          .members = {"worker/gpu-a", "learner"}});
  ASSERT_TRUE(folders.ok()) << folders.status();
  EXPECT_EQ(*ReadFile(scratch.path() / "ca.crt"), authority);
  EXPECT_NE(HolderIn(scratch.path() / "learner").serial, before);
  EXPECT_EQ(HolderIn(scratch.path() / "worker-gpu-a").Name(), "oxbow://oxbow/worker/gpu-a");
  EXPECT_TRUE(Check(scratch.path() / "worker-gpu-a", "gpu.example.org").ok());
}

TEST(CertificatesTest, AWrongNameWritesNothingAndAForeignAuthorityIsKept) {
  const testing::ScopedDirectory scratch;
  for (const FleetCertificates& wrong :
       {FleetCertificates{.members = {"boss"}}, FleetCertificates{.members = {"learner/1"}},
        FleetCertificates{.fleet = "a,URI:oxbow://b/learner"},
        FleetCertificates{.hosts = {"a,DNS:b"}}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(WriteCertificates(scratch.path() / "x", wrong).status()));
    EXPECT_FALSE(fs::exists(scratch.path() / "x"));
  }
  ASSERT_TRUE(WriteFileAtomically(scratch.path() / "ca.crt", "theirs").ok());
  ASSERT_TRUE(WriteFileAtomically(scratch.path() / "ca.key", "theirs").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(WriteCertificates(scratch.path(), {}).status()));
  EXPECT_EQ(*ReadFile(scratch.path() / "ca.key"), "theirs");
}

}  // namespace
}  // namespace oxbow::cli
