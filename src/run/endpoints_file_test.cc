// SPDX-License-Identifier: Apache-2.0
#include "run/endpoints_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/testing/scoped_directory.h"

namespace oxbow::run {
namespace {

TEST(EndpointsFileTest, ReadsBackWhatWasWritten) {
  oxbow::testing::ScopedDirectory directory;
  ASSERT_TRUE(
      WriteEndpoints(
          directory.path(),
          {{"learner", "h:1", "h:2", 5}, {"worker", "", "h:3", 6, "was killed"}, {"learner-1"}},
          {.ca = "ca.crt",
           .cert = "/tls/tls.crt",
           .key = "/tls/tls.key",
           .name = "oxbow",
           .roles = false})
          .ok());
  const auto services = ReadEndpoints(directory.path());
  ASSERT_TRUE(services.ok()) << services.status();
  ASSERT_EQ(services->size(), 3);
  EXPECT_EQ(services->at(0).grpc, "h:1");
  EXPECT_EQ(services->at(1).name, "worker");
  EXPECT_EQ(services->at(1).pid, 6);
  EXPECT_EQ(services->at(1).trouble, "was killed");
  EXPECT_EQ(services->at(0).trouble, "");
  EXPECT_EQ(services->at(2).pid, 0);
  const auto starter = ReadStarter(directory.path());
  ASSERT_TRUE(starter.ok()) << starter.status();
  EXPECT_EQ(starter->pid, getpid());
  EXPECT_FALSE(starter->host.empty());
  const RunTls tls = ReadTls(directory.path());
  EXPECT_EQ(tls.ca, std::filesystem::absolute("ca.crt")) << "who asks may stand elsewhere";
  EXPECT_EQ(tls.key, "/tls/tls.key");
  EXPECT_EQ(tls.name, "oxbow");
  EXPECT_FALSE(tls.roles);
  ASSERT_TRUE(WriteEndpoints(directory.path(), {{"learner"}}).ok());
  EXPECT_EQ(ReadTls(directory.path()).cert, "");
}

TEST(EndpointsFileTest, AMissingOrDamagedFileIsAnError) {
  oxbow::testing::ScopedDirectory directory;
  EXPECT_EQ(ReadEndpoints(directory.path()).status().code(), absl::StatusCode::kNotFound);
  for (const char* text : {"{", "[]", "{\"services\":[1]}"}) {
    std::ofstream(directory.path() / "endpoints.json") << text;
    EXPECT_EQ(ReadEndpoints(directory.path()).status().code(), absl::StatusCode::kDataLoss) << text;
    EXPECT_EQ(ReadStarter(directory.path()).status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

}  // namespace
}  // namespace oxbow::run
