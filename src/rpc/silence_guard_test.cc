// SPDX-License-Identifier: Apache-2.0
#include "rpc/silence_guard.h"

#include <gtest/gtest.h>

#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "rpc/stream.h"

namespace oxbow::rpc {
namespace {

using InsertStream = Stream<v1::InsertRequest, v1::InsertResponse>;

// Answers every message, and otherwise says nothing.
class EchoService final : public v1::ExperienceSink::Service {
 public:
  EchoService() {
    MarkMethodStreamed(0, nullptr);
    MarkMethodCallback(0, StreamHandler<v1::InsertRequest, v1::InsertResponse>(
                              runner_, [this](InsertStream& stream) { return Echo(stream); }));
  }

 private:
  Handler Echo(InsertStream& stream) {
    v1::InsertRequest request;
    while (co_await stream.Read(request)) {
      if (!co_await stream.Write({})) break;
    }
    co_return absl::OkStatus();
  }
  StreamRunner runner_{{}};
};

struct Call {
  explicit Call(Server& server)
      : stub(v1::ExperienceSink::NewStub(Connect(server.endpoint()))),
        context(ContextWithDeadline(absl::Seconds(20))),
        stream(stub->Insert(context.get())) {}
  bool Exchange() {
    v1::InsertResponse response;
    return stream->Write({}) && stream->Read(&response);
  }
  std::unique_ptr<v1::ExperienceSink::Stub> stub;
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::InsertRequest, v1::InsertResponse>> stream;
};

TEST(SilenceGuardTest, ASilentCallEndsAndOneThatGoesOnDoesNot) {
  EchoService service;
  const auto server = Server::Start({}, {&service}).value();
  SilenceGuard guard(Clock::Steady());
  Call silent(*server);
  Call lively(*server);
  SilenceGuard::Watched silent_watch(guard, *silent.context, absl::Milliseconds(100));
  SilenceGuard::Watched lively_watch(guard, *lively.context, absl::Seconds(20));
  v1::InsertResponse response;
  EXPECT_FALSE(silent.stream->Read(&response)) << "nothing but the guard ends this";
  EXPECT_TRUE(absl::IsDeadlineExceeded(silent_watch.Ended(silent.stream->Finish())));
  EXPECT_TRUE(lively.Exchange());
  EXPECT_TRUE(absl::IsUnavailable(lively_watch.Ended(grpc::Status::CANCELLED))) << "by its server";
  guard.CancelAll();
  EXPECT_FALSE(lively.stream->Read(&response));
  EXPECT_TRUE(absl::IsCancelled(lively_watch.Ended(lively.stream->Finish())));

  Call late(*server);
  const SilenceGuard::Watched late_watch(guard, *late.context, absl::Seconds(20));
  EXPECT_FALSE(late.Exchange());
  (void)late.stream->Finish();
}

}  // namespace
}  // namespace oxbow::rpc
