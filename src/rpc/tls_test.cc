// SPDX-License-Identifier: Apache-2.0
// The peers that may connect, tested with real handshakes on loopback.
#include "rpc/tls.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "base/file.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/port_language.h"
#include "rpc/server.h"
#include "rpc/status.h"
#include "tests/testing/certificates.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::rpc {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kAnswer = absl::Seconds(10);  // Timeout of calls that must be answered.

TEST(TlsAddressTest, LoopbackIsWhatOtherMachinesCannotReach) {
  for (const char* address :
       {"127.0.0.1:0", "127.9.8.7:1", "localhost:7070", "LOCALHOST:1", "[::1]:7070",
        "[::ffff:127.0.0.1]:1", "unix:/run/oxbow.sock", "unix:///run/oxbow.sock",
        "unix-abstract:oxbow", "ipv4:127.0.0.1:1", "ipv6:[::1]:1", "dns:///localhost:1"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address :
       {"0.0.0.0:7070", "[::]:7070", "10.0.0.1:7070", "learner:7070", "127.example.org:1",
        "localhost.example.org:1", "[fe80::1]:1", "[::ffff:10.0.0.1]:1", "dns:///learner:1",
        "ipv4:10.0.0.1:1", ":7070", ""}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

class Answering final : public v1::Coordinator::Service {
  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*,
                      v1::StatusResponse*) override {
    return grpc::Status::OK;
  }
};

absl::Status Call(const std::shared_ptr<grpc::Channel>& channel) {
  v1::StatusResponse response;
  return FromGrpc(
      v1::Coordinator::NewStub(channel)->Status(ContextWithDeadline(kAnswer).get(), {}, &response));
}

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    ours_.Write(Folder("ours"), {});
    ours_.Write(Folder("other-name"), {.names = testing::NamesWithRoles("ocelot")});
    ours_.Write(Folder("by-address"),
                {.names = "IP:127.0.0.1" + testing::NamesWithRoles().substr(9)});
    theirs_.Write(Folder("theirs"), {});
  }
  ~TlsTest() override { EXPECT_TRUE(UseTls({}).ok()); }

  std::filesystem::path Folder(const std::string& name) const { return scratch_.path() / name; }
  TlsOptions Of(const std::string& folder, const std::string& name = "oxbow") const {
    return {.files = {.ca = Folder(folder) / "ca.crt",
                      .cert = Folder(folder) / "tls.crt",
                      .key = Folder(folder) / "tls.key"},
            .name = name,
            .reload_every = absl::Seconds(1)};
  }
  std::unique_ptr<Server> Serve(const TlsOptions& options) {
    EXPECT_TRUE(UseTls(options).ok());
    auto server = Server::Start({}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  // A call of a client with these options.
  static absl::Status Ask(const Server& server, const TlsOptions& options) {
    const absl::Status used = UseTls(options).status();
    return used.ok() ? Call(Connect(server.endpoint())) : used;
  }
  static void ExpectRefused(const absl::Status& status) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  }

  const testing::ScopedDirectory scratch_;
  const testing::Authority ours_{"ours"};
  const testing::Authority theirs_{"theirs"};
  Answering service_;
};

TEST_F(TlsTest, HalfASetAndContradictionsAreRefusedInOneLine) {
  TlsOptions half = Of("ours");
  half.files.key.clear();
  half.files.ca.clear();
  absl::Status status = UseTls(half).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("missing: --tls-ca --tls-key"));
  EXPECT_TRUE(absl::IsInvalidArgument(UseTls({.name = "oxbow"}).status()));
  TlsOptions both = Of("ours");
  both.plaintext = true;
  EXPECT_TRUE(absl::IsInvalidArgument(UseTls(both).status()));
}

// Promise: Unauthenticated callers are refused.
TEST_F(TlsTest, ListeningBeyondThisMachineTakesTlsOrTheWordPlaintext) {
  const auto start = [this] {
    return Server::Start({.listen = "0.0.0.0:0"}, {&service_}).status();
  };
  ASSERT_TRUE(UseTls({}).ok());
  EXPECT_TRUE(MayListen("127.0.0.1:0").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(start()));
  EXPECT_THAT(
      std::string(start().message()),
      ::testing::AllOf(HasSubstr("--tls-cert"), HasSubstr("--plaintext"), HasSubstr("0.0.0.0:0")));
  ASSERT_TRUE(UseTls({.plaintext = true}).ok());
  EXPECT_TRUE(start().ok());
  ASSERT_TRUE(UseTls(Of("ours")).ok());
  EXPECT_TRUE(start().ok());
}

TEST_F(TlsTest, MembersOfAFleetHearEachOther) {
  const auto server = Serve(Of("ours"));
  EXPECT_TRUE(Ask(*server, Of("ours")).ok()) << Ask(*server, Of("ours"));
}

// Promise: Unauthenticated callers are refused.
TEST_F(TlsTest, PlaintextAndAnotherAuthorityAreRefused) {
  const auto server = Serve(Of("ours"));
  ExpectRefused(Ask(*server, {}));
  ExpectRefused(Ask(*server, Of("theirs")));
}

// gRPC's own words are "Socket closed" and the name of a function of OpenSSL.
// Promise: Unauthenticated callers are refused.
TEST_F(TlsTest, WhatKeepsTwoProcessesApartIsSaidInWords) {
  const auto why = [](const Server& server, const TlsOptions& options) {
    const absl::Status status = Ask(server, options);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    return std::string(Explained(status, server.endpoint()).message());
  };
  const auto encrypted = Serve(Of("ours"));
  EXPECT_THAT(why(*encrypted, {}), HasSubstr("this port speaks TLS"));
  EXPECT_THAT(why(*encrypted, Of("theirs")), HasSubstr("of another authority than --tls-ca"));
  TlsOptions half = Of("theirs");  // It trusts the server, which does not trust it.
  const std::string both = ReadFile(half.files.ca).value() + ReadFile(Of("ours").files.ca).value();
  half.files.ca = Folder("both.crt");
  ASSERT_TRUE(WriteFileAtomically(half.files.ca, both).ok());
  EXPECT_THAT(why(*encrypted, half), HasSubstr("refuses this process's certificate"));
  const auto plain = Serve({});
  EXPECT_THAT(why(*plain, Of("ours")), HasSubstr("does not speak TLS"));
  EXPECT_TRUE(Ask(*encrypted, Of("ours")).ok());
  EXPECT_EQ(WhyNotUnderstood(encrypted->endpoint(), kAnswer), "");
  EXPECT_EQ(WhyNotUnderstood("127.0.0.1:1", kAnswer), "") << "nothing listens";
}

// Callers that UseTls would not make: they trust the server, but show a wrong certificate.
// Promise: Unauthenticated callers are refused. With TLS, every server of a run refuses a caller
// that shows no certificate of the run's authority (and of the fleet's name, where there is one).
// Every client refuses a server that shows none. This also holds on loopback. A stranger can use up
// connections, but each only until its handshake times out after 20 s, and the server listens on.
// Renewed files are used without a restart. Without TLS nothing listens beyond loopback unless told
// to. Not covered: metrics, and collectives of ranks and broadcasts.
TEST_F(TlsTest, ACallerIsRefusedUnlessItsCertificateIsOfTheFleet) {
  const auto call = [&](const Server& server, const std::string& shown) {
    const auto read = [&](const std::string& folder, const char* file) {
      return ReadFile(Folder(folder) / file).value();
    };
    grpc::SslCredentialsOptions options{.pem_root_certs = read("ours", "ca.crt")};
    if (!shown.empty()) {
      options.pem_private_key = read(shown, "tls.key");
      options.pem_cert_chain = read(shown, "tls.crt");
    }
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("oxbow");
    return Call(
        grpc::CreateCustomChannel(server.endpoint(), grpc::SslCredentials(options), arguments));
  };
  for (const char* name : {"", "oxbow"}) {
    const auto server = Serve(Of("ours", name));
    EXPECT_TRUE(call(*server, "ours").ok()) << call(*server, "ours");
    ExpectRefused(call(*server, ""));
    ExpectRefused(call(*server, "theirs"));
    // Without a name, a certificate of the authority is enough.
    EXPECT_EQ(call(*server, "other-name").ok(), std::string(name).empty());
  }
}

// Promise: Unauthenticated callers are refused.
TEST_F(TlsTest, AServerWithTheWrongNameIsRefused) {
  const auto other = Serve(Of("other-name", ""));
  ExpectRefused(Ask(*other, Of("ours")));
  ExpectRefused(Ask(*other, Of("ours", "")));  // Nor is it the host that was called.
}

TEST_F(TlsTest, WithoutANameTheHostIsChecked) {
  const auto server = Serve(Of("by-address", ""));
  EXPECT_TRUE(Ask(*server, Of("ours", "")).ok()) << Ask(*server, Of("ours", ""));
}

// The own address is in no certificate of a fleet, and gRPC logs an error for each such connection.
// Promise: The surroundings of a run change nothing.
TEST_F(TlsTest, AQuietFleetLogsNothingOfItsSelfProbes) {
  for (const auto& [folder, name] :
       {std::pair("ours", "oxbow"), std::pair("ours", ""), std::pair("by-address", "")}) {
    ::testing::internal::CaptureStderr();
    {
      const auto server = Serve(Of(folder, name));
      absl::Notification enough;
      int looks = 0;  // Two a probe.
      const SelfProbe probe(server->endpoint(), {.every = absl::Milliseconds(1)}, [&] {
        if (++looks == 9) enough.Notify();
        return 0;
      });
      EXPECT_TRUE(enough.WaitForNotificationWithTimeout(absl::Seconds(30)));
    }
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << folder << " " << name;
  }
}

// Promise: Unauthenticated callers are refused.
TEST_F(TlsTest, NewFilesAreUsedWithoutARestart) {
  const auto server = Serve(Of("ours"));
  ASSERT_TRUE(UseTls(Of("theirs")).ok());
  const auto newcomer = Connect(server->endpoint());
  ExpectRefused(Call(newcomer));  // Its certificate is unknown to the server.
  theirs_.Write(Folder("ours"), {});
  EXPECT_TRUE(
      newcomer->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(30)))
      << "the server goes on with its old certificate";
}

}  // namespace
}  // namespace oxbow::rpc
