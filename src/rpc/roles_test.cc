// SPDX-License-Identifier: Apache-2.0
// Every call by every role, asked of servers and channels with certificates of one role each. The
// services here implement nothing: a call that passes the check ends as UNIMPLEMENTED.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "oxbow/v1/learner_ranks.grpc.pb.h"
#include "oxbow/v1/replay_buffer.grpc.pb.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "oxbow/v1/weight_channel.grpc.pb.h"
#include "rpc/access.h"
#include "rpc/channel.h"
#include "rpc/role_table.h"
#include "rpc/server.h"
#include "rpc/status.h"
#include "rpc/tls.h"
#include "telemetry/metrics.h"
#include "tests/testing/certificates.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::rpc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kAnswer = absl::Seconds(10);

// The promise, written down a second time: a change of the table shows here.
const std::map<std::string, std::pair<std::string, std::string>> kPromised = {
    {"/oxbow.v1.Coordinator/Register", {"worker", "learner"}},
    {"/oxbow.v1.Coordinator/Work", {"worker", "learner"}},
    {"/oxbow.v1.Coordinator/Status", {"learner worker operator", "learner"}},
    {"/oxbow.v1.Coordinator/Drain", {"operator", "learner"}},
    {"/oxbow.v1.Coordinator/Deliver", {"worker", "learner"}},
    {"/oxbow.v1.ExperienceSink/Insert", {"worker", "learner"}},
    {"/oxbow.v1.WeightChannel/Watch", {"worker", "learner"}},
    {"/oxbow.v1.WeightChannel/Fetch", {"learner worker", "learner worker"}},
    {"/oxbow.v1.WeightChannel/ReportApplied", {"worker", "learner"}},
    {"/oxbow.v1.WeightChannel/ReportPeer", {"worker", "learner"}},
    {"/oxbow.v1.LearnerRanks/Join", {"learner", "learner"}},
    {"/oxbow.v1.LearnerRanks/Accept", {"learner", "learner"}},
    {"/oxbow.v1.ReplayBuffer/Offer", {"learner", "buffer"}},
    {"/oxbow.v1.ReplayBuffer/Draw", {"learner", "buffer"}},
    {"/oxbow.v1.ReplayBuffer/Advance", {"learner", "buffer"}},
    {"/oxbow.v1.ReplayBuffer/Checkpoint", {"learner", "buffer"}},
    {"/oxbow.v1.ReplayBuffer/Restore", {"learner operator", "buffer"}},
    {"/oxbow.v1.ReplayBuffer/Read", {"learner worker operator", "buffer"}},
    {"/oxbow.v1.ReplayBuffer/Info", {"learner worker operator", "buffer"}},
    {"/oxbow.v1.ReplayBuffer/List", {"learner operator", "buffer"}},
    {"/oxbow.v1.ReplayBuffer/Verify", {"learner operator", "buffer"}},
    {"/oxbow.v1.Reward/Describe", {"learner worker operator", "reward"}},
    {"/oxbow.v1.Reward/Score", {"learner worker", "reward"}},
    {"/grpc.health.v1.Health/Check",
     {"learner worker buffer reward operator", "learner worker buffer reward operator"}},
    {"/grpc.health.v1.Health/Watch",
     {"learner worker buffer reward operator", "learner worker buffer reward operator"}},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
     {"operator", "learner worker buffer reward operator"}},
    {"/oxbow.v1.Coordinator/NoSuchMethod", {"", ""}},
};

bool Allows(const std::string& roles, Role role) { return absl::StrContains(roles, NameOf(role)); }

absl::Status Ask(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
  return FromGrpc(CallBytes(channel, method, kAnswer).status);
}

class RolesTest : public ::testing::Test {
 protected:
  RolesTest() {
    Make("all", testing::NamesWithRoles());
    for (const Role role : kEveryRole) {
      Make(NameOf(role), absl::StrCat("DNS:oxbow,URI:", UriOf({"oxbow", role, ""})));
    }
    Make("stranger", "DNS:oxbow,URI:oxbow://other/learner");
    Make("nobody", "DNS:oxbow");
    Make("w1", "DNS:oxbow,URI:oxbow://oxbow/worker/w1");
  }
  ~RolesTest() override { EXPECT_TRUE(UseTls({}).ok()); }

  void Make(const std::string& folder, const std::string& names) {
    authority_.Write(scratch_.path() / folder, {.names = names});
  }
  TlsOptions Of(const std::string& folder) const {
    const std::filesystem::path files = scratch_.path() / folder;
    return {.files = {.ca = files / "ca.crt", .cert = files / "tls.crt", .key = files / "tls.key"},
            .name = "oxbow",
            .reload_every = absl::Seconds(1)};
  }
  std::unique_ptr<Server> Serve(const TlsOptions& options) {
    EXPECT_TRUE(UseTls(options).ok()) << UseTls(options).status();
    auto server =
        Server::Start({}, {&coordinator_, &sink_, &weights_, &ranks_, &buffer_, &reward_});
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  static std::shared_ptr<grpc::Channel> ChannelOf(const Server& server, const TlsOptions& options) {
    EXPECT_TRUE(UseTls(options).ok()) << UseTls(options).status();
    return Connect(server.endpoint());
  }
  std::string Pem(const std::string& folder) const {
    return ReadFile(scratch_.path() / folder / "tls.crt").value();
  }

  const testing::ScopedDirectory scratch_;
  const testing::Authority authority_{"ours"};
  v1::Coordinator::Service coordinator_;
  v1::ExperienceSink::Service sink_;
  v1::WeightChannel::Service weights_;
  v1::LearnerRanks::Service ranks_;
  v1::ReplayBuffer::Service buffer_;
  v1::Reward::Service reward_;
};

// Promise: A certificate allows the calls of its role alone. Under TLS each call has one row in one
// table: who may make it and who may answer it. Any other call is PERMISSION_DENIED before a
// handler runs, counted, and logged with the caller's identity. A worker speaks for the worker its
// certificate names. A revoked certificate is refused within 10 s, on old connections too; its open
// streams end with their next message. Not covered: `--tls-roles off`, plaintext, metrics,
// collectives.
TEST_F(RolesTest, EveryMethodOfEveryServiceHasARowAndEveryRowAMethod) {
  std::set<std::string> methods = {
      "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
  std::map<std::string, const google::protobuf::FileDescriptor*> files;
  for (const google::protobuf::Descriptor* message :
       {v1::WorkRequest::descriptor(), v1::InsertRequest::descriptor(),
        v1::WatchRequest::descriptor(), v1::RankReport::descriptor(),
        v1::OfferRequest::descriptor(), v1::ScoreRequest::descriptor()}) {
    files[message->file()->name()] = message->file();
  }
  for (const auto& file : std::filesystem::directory_iterator(OXBOW_SOURCE_DIR "/proto/oxbow/v1")) {
    if (!absl::StrContains(ReadFile(file.path()).value(), "\nservice ")) continue;
    const auto* described = files["oxbow/v1/" + file.path().filename().string()];
    ASSERT_NE(described, nullptr) << file.path() << ": a message of it belongs into this test";
    for (int i = 0; i < described->service_count(); ++i) {
      const auto& service = *described->service(i);
      for (int j = 0; j < service.method_count(); ++j) {
        methods.insert(absl::StrCat("/", service.full_name(), "/", service.method(j)->name()));
      }
    }
  }
  std::set<std::string> rows;
  for (const RoleRow& row : RoleTable()) {
    EXPECT_TRUE(rows.insert(std::string(row.method)).second) << row.method << " is there twice";
  }
  EXPECT_EQ(rows, methods);
}

// Promise: A certificate allows the calls of its role alone.
TEST_F(RolesTest, AServerAnswersTheRolesOfItsRowAlone) {
  const auto server = Serve(Of("all"));
  for (const Role role : kEveryRole) {
    const auto channel = ChannelOf(*server, Of(NameOf(role)));
    for (const auto& [method, roles] : kPromised) {
      const absl::Status status = Ask(channel, method);
      const bool refused = absl::IsPermissionDenied(status);
      EXPECT_EQ(refused, !Allows(roles.first, role))
          << NameOf(role) << " " << method << " " << status;
      EXPECT_FALSE(absl::IsUnavailable(status)) << method << " " << status;
    }
  }
}

// Promise: A certificate allows the calls of its role alone.
TEST_F(RolesTest, ACallerBelievesTheRolesOfItsRowAlone) {
  for (const Role role : kEveryRole) {
    const auto server = Serve(Of(NameOf(role)));
    const auto channel = ChannelOf(*server, Of("all"));
    for (const auto& [method, roles] : kPromised) {
      const absl::Status status = Ask(channel, method);
      const bool refused = absl::IsPermissionDenied(status);
      EXPECT_EQ(refused, !Allows(roles.second, role))
          << NameOf(role) << " " << method << " " << status;
      EXPECT_FALSE(absl::IsUnavailable(status)) << method << " " << status;
    }
  }
}

TEST_F(RolesTest, ARefusalNamesCallerCallAndRolesAndIsCounted) {
  const auto server = Serve(Of("all"));
  const auto count = [] {
    return telemetry::RefusedCalls::This().counts()[{"oxbow.v1.Coordinator/Drain", "role"}];
  };
  const uint64_t before = count();
  const auto channel = ChannelOf(*server, Of("w1"));
  const absl::Status status = Ask(channel, "/oxbow.v1.Coordinator/Drain");
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("oxbow://oxbow/worker/w1"), HasSubstr("Coordinator/Drain"),
                    HasSubstr("only operator may")));
  EXPECT_EQ(count(), before + 1);
}

// A certificate of the authority that this program would not start with.
// Promise: A certificate allows the calls of its role alone.
TEST_F(RolesTest, NoRoleAndAnotherFleetMayDoNothing) {
  Access access("oxbow", RevocationList::Open("", absl::Seconds(1), Clock::Steady()).value());
  for (const char* folder : {"nobody", "stranger"}) {
    for (const RoleRow& row : RoleTable()) {
      EXPECT_TRUE(absl::IsPermissionDenied(access.MayCall(row.method, Pem(folder)))) << row.method;
      EXPECT_TRUE(absl::IsPermissionDenied(access.MayAnswer(row.method, Pem(folder))));
    }
  }
  EXPECT_TRUE(absl::IsPermissionDenied(access.MayCall("/grpc.health.v1.Health/Check", "")));
  EXPECT_TRUE(absl::IsPermissionDenied(access.MayCall("/oxbow.v1.Coordinator/New", Pem("all"))));
}

TEST_F(RolesTest, MistakesAreOneLineAtTheStart) {
  const auto refused = [&](TlsOptions options, const std::string& reason) {
    const absl::Status status = UseTls(options).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--tls-cert"), HasSubstr(options.files.cert), HasSubstr(reason)));
  };
  refused(Of("nobody"), "oxbow certificates");
  refused(Of("stranger"), "it is of the fleet other, not of oxbow (--tls-name)");
  TlsOptions worker = Of("worker");
  worker.served = Role::kLearner;
  refused(worker, "this process takes the role learner, not oxbow://oxbow/worker");
  TlsOptions off = Of("nobody");
  off.roles = false;
  EXPECT_TRUE(UseTls(off).ok());
  off.revoked = scratch_.path() / "revoked";
  EXPECT_TRUE(absl::IsInvalidArgument(UseTls(off).status()));
  TlsOptions missing = Of("all");
  missing.revoked = scratch_.path() / "revoked";
  EXPECT_TRUE(absl::IsNotFound(UseTls(missing).status()));
}

TEST_F(RolesTest, WithoutRolesEveryMemberMayCallEverything) {
  TlsOptions off = Of("all");
  off.roles = false;
  const auto server = Serve(off);
  TlsOptions nobody = Of("nobody");
  nobody.roles = false;
  const auto channel = ChannelOf(*server, nobody);
  EXPECT_TRUE(absl::IsUnimplemented(Ask(channel, "/oxbow.v1.Coordinator/Drain")));
}

// The end of a call once it is refused, within the time that is promised and some for a
// machine that is busy.
absl::Status RefusalOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& call) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  absl::Status status = Ask(channel, call);
  while (absl::IsUnimplemented(status) && absl::Now() < deadline) status = Ask(channel, call);
  return status;
}

// Promise: A certificate allows the calls of its role alone.
TEST_F(RolesTest, ARevokedCallerIsRefusedOnItsOldConnection) {
  EXPECT_LE(TlsOptions().reload_every, absl::Seconds(10))
      << "the list is read as often as promised";
  TlsOptions options = Of("all");
  options.revoked = scratch_.path() / "revoked";
  ASSERT_TRUE(WriteFileAtomically(options.revoked, "# nobody yet\n").ok());
  const auto server = Serve(options);
  const auto channel = ChannelOf(*server, Of("w1"));
  const std::string call = "/oxbow.v1.Coordinator/Status";
  ASSERT_TRUE(absl::IsUnimplemented(Ask(channel, call)));
  ASSERT_TRUE(WriteFileAtomically(options.revoked, "oxbow://oxbow/worker/w1\n").ok());
  const absl::Status status = RefusalOf(channel, call);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("revoked"));
  const auto other = ChannelOf(*server, Of("worker"));
  EXPECT_TRUE(absl::IsUnimplemented(Ask(other, call)));
}

// Promise: A certificate allows the calls of its role alone.
TEST_F(RolesTest, ARevokedServerIsBelievedByNobody) {
  const auto server = Serve(Of("learner"));
  TlsOptions options = Of("all");
  options.revoked = scratch_.path() / "revoked";
  ASSERT_TRUE(WriteFileAtomically(options.revoked, "# nobody yet\n").ok());
  const auto channel = ChannelOf(*server, options);
  const std::string call = "/oxbow.v1.Coordinator/Status";
  ASSERT_TRUE(absl::IsUnimplemented(Ask(channel, call)));
  ASSERT_TRUE(WriteFileAtomically(options.revoked, "oxbow://oxbow/learner\n").ok());
  const absl::Status status = RefusalOf(channel, call);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("revoked"));
}

// Answers each request until the stream ends.
class EchoingWork final : public v1::Coordinator::Service {
  grpc::Status Work(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::WorkResponse, v1::WorkRequest>* stream) override {
    v1::WorkRequest request;
    while (stream->Read(&request) && stream->Write({})) {
    }
    return grpc::Status::OK;
  }
};

// Promise: A certificate allows the calls of its role alone.
TEST_F(RolesTest, ARevokedCallersOldStreamEnds) {
  TlsOptions options = Of("all");
  options.revoked = scratch_.path() / "revoked";
  ASSERT_TRUE(WriteFileAtomically(options.revoked, "").ok());
  EchoingWork service;
  ASSERT_TRUE(UseTls(options).ok());
  const auto server = Server::Start({}, {&service}).value();
  const auto stub = v1::Coordinator::NewStub(ChannelOf(*server, Of("w1")));
  const auto context = ContextWithDeadline(absl::Seconds(60));
  const auto stream = stub->Work(context.get());
  v1::WorkResponse response;
  ASSERT_TRUE(stream->Write({}) && stream->Read(&response));
  const std::string serial = HolderOf(Pem("w1"))->serial;
  ASSERT_TRUE(WriteFileAtomically(options.revoked, "serial=" + serial).ok());
  while (stream->Write({}) && stream->Read(&response)) {
  }
  const grpc::Status end = stream->Finish();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::CANCELLED) << end.error_message();
  const auto counts = telemetry::RefusedCalls::This().counts();
  EXPECT_EQ(counts.count({"oxbow.v1.Coordinator/Work", "revoked"}), 1u) << "counted and logged";
}

TEST(RevocationListTest, IdentitiesAndSerialNumbersInEveryNotation) {
  const auto revoked = ParseRevocations(
      "# lost in May\noxbow://f/worker/a  # spot\n\nserial=00:ab:CD\r\n0f12\noxbow://f/learner\n");
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_THAT(*revoked, ::testing::UnorderedElementsAre("oxbow://f/worker/a", "ABCD", "F12",
                                                        "oxbow://f/learner"));
  const absl::Status wrong = ParseRevocations("\nworker-7\n").status();
  EXPECT_TRUE(absl::IsInvalidArgument(wrong));
  EXPECT_THAT(std::string(wrong.message()), AllOf(HasSubstr("line 2"), HasSubstr("worker-7")));
}

TEST(RevocationListTest, ADamagedListKeepsItsLastContent) {
  const testing::ScopedDirectory scratch;
  const std::filesystem::path path = scratch.path() / "revoked";
  ASSERT_TRUE(WriteFileAtomically(path, "AB\n").ok());
  FakeClock clock;
  const auto list = RevocationList::Open(path, absl::Seconds(10), clock).value();
  const Holder lost{.serial = "AB"};
  const Holder other{.serial = "CD"};
  EXPECT_TRUE(list->Has(lost));
  ASSERT_TRUE(WriteFileAtomically(path, "what is this\n").ok());
  clock.Advance(absl::Seconds(10));
  EXPECT_TRUE(list->Has(lost));
  std::filesystem::remove(path);
  clock.Advance(absl::Seconds(10));
  EXPECT_TRUE(list->Has(lost));
  ASSERT_TRUE(WriteFileAtomically(path, "CD\n").ok());
  EXPECT_FALSE(list->Has(other)) << "not looked at yet";
  clock.Advance(absl::Seconds(10));
  EXPECT_TRUE(list->Has(other));
  EXPECT_FALSE(list->Has(lost));
}

TEST(IdentityTest, UrisAreReadAsTheyAreWritten) {
  for (const Role role : kEveryRole) {
    const Identity identity{"my.fleet-1", role, ""};
    EXPECT_EQ(ParseIdentity(UriOf(identity)).value(), identity);
  }
  const Identity bound{"f", Role::kWorker, "gpu_7.a"};
  EXPECT_EQ(ParseIdentity(UriOf(bound)).value(), bound);
  for (const char* wrong :
       {"", "oxbow://", "oxbow://f", "oxbow://f/", "oxbow:///learner", "oxbow://f/boss",
        "oxbow://f/learner/1", "oxbow://f/worker/", "oxbow://f/worker/a/b", "oxbow://f/Worker",
        "spiffe://f/worker", "oxbow://f g/worker", "oxbow://f/worker?x"}) {
    EXPECT_FALSE(ParseIdentity(wrong).ok()) << wrong;
  }
}

TEST(IdentityTest, AWorkersIdIsItsCertificatesOrBeginsWithIt) {
  const Identity any{"f", Role::kWorker, ""};
  const Identity bound{"f", Role::kWorker, "gpu-a"};
  EXPECT_TRUE(MayBeWorker(any, "what you like"));
  for (const char* own : {"gpu-a", "gpu-a-1", "gpu-a.x", "gpu-a/2"}) {
    EXPECT_TRUE(MayBeWorker(bound, own)) << own;
  }
  for (const char* other : {"", "gpu", "gpu-", "gpu-ab", "gpu-b", "GPU-a"}) {
    EXPECT_FALSE(MayBeWorker(bound, other)) << other;
  }
  EXPECT_FALSE(MayBeWorker({"f", Role::kLearner, ""}, "gpu-a"));
}

}  // namespace
}  // namespace oxbow::rpc
