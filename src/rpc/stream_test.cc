// SPDX-License-Identifier: Apache-2.0
// Streams as coroutines, over a real connection: what arrives, how they end, and that waiting ones
// hold no thread.
#include "rpc/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/server.h"

namespace oxbow::rpc {
namespace {

using ::testing::HasSubstr;
using InsertStream = Stream<v1::InsertRequest, v1::InsertResponse>;

constexpr absl::Duration kDeadline = absl::Seconds(20);

// The bytes of a chunk say what its stream does.
class ScriptedService final : public v1::ExperienceSink::Service, public HasStreams {
 public:
  explicit ScriptedService(StreamRunner::Options options) : runner_(options) {
    MarkMethodStreamed(0, nullptr);
    MarkMethodCallback(0, StreamHandler<v1::InsertRequest, v1::InsertResponse>(
                              runner_, [this](InsertStream& stream) { return Play(stream); }));
  }
  StreamRunner& streams() override { return runner_; }

  absl::Notification entered;       // A stream waits for Wake,
  InsertStream* waiting = nullptr;  // this one.
  absl::Notification cancelled;
  absl::Notification unblock;

 private:
  static v1::InsertResponse Credit(uint64_t bytes) {
    v1::InsertResponse response;
    response.mutable_credit()->set_bytes(bytes);
    return response;
  }

  // Sends 7 credits, each after a wait.
  static Part Count(InsertStream& stream) {
    for (uint64_t i = 0; i < 7; ++i) {
      co_await stream.Wait(absl::Milliseconds(1));
      if (!co_await stream.Write(Credit(i))) co_return absl::CancelledError("gone");
    }
    co_return absl::NotFoundError("as the part says");
  }

  Handler Play(InsertStream& stream) {
    v1::InsertRequest request;
    uint64_t count = 0;
    while (co_await stream.Read(request)) {
      const std::string script = request.chunk().data();
      ++count;
      if (script == "many") {
        for (uint64_t i = 0; i < 100; ++i) stream.Send(Credit(i));
      } else if (script == "block") {
        unblock.WaitForNotification();
      } else if (script == "wait") {
        waiting = &stream;
        entered.Notify();
        while (!stream.cancelled()) co_await stream.Wait();
        cancelled.Notify();
      } else if (script == "flood") {
        v1::InsertResponse large;
        large.mutable_ack()->set_error(std::string(1 << 20, 'x'));
        while (co_await stream.Write(large)) {
        }
      } else if (script.starts_with("answer")) {
        v1::InsertResponse answer;
        answer.mutable_ack()->set_error(std::string(1 << 16, 'x'));
        stream.Send(answer);
        continue;
      } else if (script == "flood and leave") {
        v1::InsertResponse large;
        large.mutable_ack()->set_error(std::string(1 << 20, 'x'));
        stream.Send(large);
        co_return absl::OkStatus();
      } else if (script == "part") {
        Part part = Count(stream);
        co_return co_await part;
      } else if (script == "fail") {
        co_return absl::NotFoundError("as scripted");
      }
      if (!co_await stream.Write(Credit(1000 + count))) break;
    }
    co_return absl::OkStatus();
  }

  StreamRunner runner_;
};

class StreamTest : public ::testing::Test {
 protected:
  explicit StreamTest(StreamRunner::Options options = {.threads = 2, .idle_max = kDeadline})
      : service_(options), server_(Server::Start({}, {&service_}).value()) {}
  ~StreamTest() override {
    if (!service_.unblock.HasBeenNotified()) service_.unblock.Notify();
  }

  struct Call {
    explicit Call(const std::string& endpoint)
        : stub(v1::ExperienceSink::NewStub(Connect(endpoint))),
          context(ContextWithDeadline(kDeadline)),
          stream(stub->Insert(context.get())) {}
    ~Call() {
      if (stream == nullptr) return;
      context->TryCancel();
      (void)stream->Finish();
    }
    void Do(const std::string& script) {
      v1::InsertRequest request;
      request.mutable_chunk()->set_data(script);
      stream->Write(request);
    }
    uint64_t Next() {
      v1::InsertResponse response;
      return stream->Read(&response) ? response.credit().bytes() : 0;
    }
    grpc::Status End() {
      const grpc::Status status = stream->Finish();
      stream.reset();
      return status;
    }
    std::unique_ptr<v1::ExperienceSink::Stub> stub;
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::InsertRequest, v1::InsertResponse>> stream;
  };
  std::unique_ptr<Call> Open() { return std::make_unique<Call>(server_->endpoint()); }

  ScriptedService service_;
  std::unique_ptr<Server> server_;
};

TEST_F(StreamTest, APartSendsInItsTurnAndItsStatusComesBack) {
  const auto call = Open();
  call->Do("");
  EXPECT_EQ(call->Next(), 1001u);
  call->Do("part");
  for (uint64_t i = 0; i < 7; ++i) EXPECT_EQ(call->Next(), i);
  EXPECT_EQ(call->Next(), 0u);
  EXPECT_EQ(call->End().error_message(), "as the part says");

  const auto left = Open();  // In the middle of a part; the server ends nevertheless.
  left->Do("part");
  left->context->TryCancel();
}

TEST_F(StreamTest, MessagesGoBothWaysInOrderAndTheStatusFollowsThem) {
  const auto call = Open();
  call->Do("many");
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(call->Next(), i);
  EXPECT_EQ(call->Next(), 1001u);
  call->Do("");
  EXPECT_EQ(call->Next(), 1002u);
  call->stream->WritesDone();
  EXPECT_EQ(call->Next(), 0u);
  EXPECT_TRUE(call->End().ok());

  const auto failing = Open();
  failing->Do("fail");
  EXPECT_EQ(failing->Next(), 0u);
  const grpc::Status status = failing->End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "as scripted");
}

// Promise: Open streams stop nobody.
TEST_F(StreamTest, ManyOpenStreamsHoldNoThread) {
  std::vector<std::unique_ptr<Call>> idle;
  for (int i = 0; i < 400; ++i) {
    idle.push_back(Open());
    idle.back()->Do("");
    ASSERT_EQ(idle.back()->Next(), 1001u);
  }
  EXPECT_EQ(service_.streams().streams(), 400u);
  const auto busy = Open();
  busy->Do("");
  EXPECT_EQ(busy->Next(), 1001u);
  idle.front()->Do("");
  EXPECT_EQ(idle.front()->Next(), 1002u);
}

TEST_F(StreamTest, AHandlerThatBlocksHoldsItsThreadAlone) {
  const auto blocked = Open();
  blocked->Do("block");
  const auto other = Open();
  other->Do("");
  EXPECT_EQ(other->Next(), 1001u);
  service_.unblock.Notify();
  EXPECT_EQ(blocked->Next(), 1001u);
}

TEST_F(StreamTest, CancellationEndsAWait) {
  auto call = Open();
  call->Do("wait");
  ASSERT_TRUE(service_.entered.WaitForNotificationWithTimeout(kDeadline));
  service_.waiting->Wake();  // Alone it ends nothing: the handler looks and waits again.
  call.reset();
  EXPECT_TRUE(service_.cancelled.WaitForNotificationWithTimeout(kDeadline));
}

TEST_F(StreamTest, ShutdownEndsStreamsThatReadAndThatWait) {
  const auto reading = Open();
  reading->Do("");
  EXPECT_EQ(reading->Next(), 1001u);
  const auto waiting = Open();
  waiting->Do("wait");
  ASSERT_TRUE(service_.entered.WaitForNotificationWithTimeout(kDeadline));
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(reading->Next(), 0u);
  EXPECT_EQ(waiting->Next(), 0u);
}

class IdleStreamTest : public StreamTest {
 protected:
  IdleStreamTest() : StreamTest({.threads = 2, .idle_max = absl::Milliseconds(50)}) {}
};

// Promise: Open streams stop nobody.
TEST_F(IdleStreamTest, APeerThatSendsNothingIsToldSoAndTheStreamIsGone) {
  const auto call = Open();
  call->Do("");
  EXPECT_EQ(call->Next(), 1001u);
  EXPECT_EQ(call->Next(), 0u);
  const grpc::Status status = call->End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("idle for 50ms"));
  EXPECT_TRUE(service_.streams().AwaitNone(kDeadline));
}

// Its requests are read no more when so many answers wait for it.
// Promise: A peer that does not read fills no memory.
TEST_F(IdleStreamTest, APeerThatAsksAndTakesNoAnswersIsGoneBeforeTheyPileUp) {
  const auto call = Open();
  v1::InsertRequest request;
  request.mutable_chunk()->set_data("answer" + std::string(1 << 16, ' '));
  int asked = 0;
  while (asked < 4000 && call->stream->Write(request)) ++asked;
  EXPECT_LT(asked, 4000) << "256 MiB of answers";
}

TEST_F(IdleStreamTest, APeerThatTakesNothingIsGone) {
  const auto call = Open();
  call->Do("flood");
  const auto other = Open();
  other->Do("flood and leave");
  EXPECT_TRUE(service_.streams().AwaitNone(kDeadline));
}

}  // namespace
}  // namespace oxbow::rpc
