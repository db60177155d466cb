// SPDX-License-Identifier: Apache-2.0
// Workers with certificates: each speaks for the worker its certificate names, in every call that
// names one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpc/tls.h"
#include "tests/testing/certificates.h"
#include "tests/testing/coordinator_fixture.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::learner {
namespace {

// Certificates, in use before the fixture's server is made.
class Certificates {
 protected:
  Certificates() {
    authority_.Write(scratch_.path() / "learner", {});
    authority_.Write(scratch_.path() / "w1", {.names = "DNS:oxbow,URI:oxbow://oxbow/worker/w1"});
    Use("learner");
  }
  ~Certificates() { EXPECT_TRUE(rpc::UseTls({}).ok()); }

  void Use(const std::string& folder) {
    const std::filesystem::path files = scratch_.path() / folder;
    const auto used = rpc::UseTls(
        {.files = {.ca = files / "ca.crt", .cert = files / "tls.crt", .key = files / "tls.key"},
         .name = "oxbow"});
    EXPECT_TRUE(used.ok()) << used.status();
  }

 private:
  const testing::ScopedDirectory scratch_;
  const oxbow::testing::Authority authority_{"ours"};
};

class WorkerIdentityTest : public Certificates, public CoordinatorServiceTest {
 protected:
  WorkerIdentityTest() { Use("w1"); }

  grpc::StatusCode Register(const std::string& id) {
    const auto stub = v1::Coordinator::NewStub(rpc::Connect(server_->endpoint()));
    v1::RegisterRequest request;
    request.set_worker_id(id);
    request.set_protocol(kProtocolRevision);
    v1::RegisterResponse response;
    return stub->Register(rpc::ContextWithDeadline(absl::Seconds(20)).get(), request, &response)
        .error_code();
  }
  grpc::StatusCode Work(const std::string& id) {
    const auto stub = v1::Coordinator::NewStub(rpc::Connect(server_->endpoint()));
    const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
    const auto stream = stub->Work(context.get());
    v1::WorkRequest request;
    request.set_epoch(kEpoch);
    request.set_worker_id(id);
    request.mutable_goodbye();
    stream->Write(request);
    stream->WritesDone();
    v1::WorkResponse response;
    while (stream->Read(&response)) {
    }
    return stream->Finish().error_code();
  }
  // The outcome of a header without a lease; it is refused by content where the name is right.
  grpc::StatusCode Insert(const std::string& id) {
    const auto stub = v1::ExperienceSink::NewStub(rpc::Connect(server_->endpoint()));
    const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
    const auto stream = stub->Insert(context.get());
    v1::InsertRequest request;
    request.mutable_header()->set_worker_id(id);
    stream->Write(request);
    stream->WritesDone();
    v1::InsertResponse response;
    while (stream->Read(&response)) {
    }
    return stream->Finish().error_code();
  }
};

TEST_F(WorkerIdentityTest, ItsOwnNameAndNamesThatBeginWithItAreTaken) {
  for (const char* own : {"w1", "w1-0"}) {
    EXPECT_EQ(Register(own), grpc::StatusCode::OK) << own;
    EXPECT_EQ(Work(own), grpc::StatusCode::OK) << own;
    EXPECT_EQ(Insert(own), grpc::StatusCode::OK) << own;
  }
}

// Promise: A certificate allows the calls of its role alone.
TEST_F(WorkerIdentityTest, AnotherWorkersNameIsRefused) {
  for (const char* other : {"w2", "w10"}) {
    EXPECT_EQ(Register(other), grpc::StatusCode::PERMISSION_DENIED) << other;
    EXPECT_EQ(Work(other), grpc::StatusCode::PERMISSION_DENIED) << other;
    EXPECT_EQ(Insert(other), grpc::StatusCode::PERMISSION_DENIED) << other;
  }
}

}  // namespace
}  // namespace oxbow::learner
