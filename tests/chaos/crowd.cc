// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/crowd.h"

#include <grpcpp/support/byte_buffer.h>

#include <utility>

#include "rpc/channel.h"

namespace oxbow::chaos {
namespace {

constexpr absl::Duration kCallAtMost = absl::Minutes(5);

}  // namespace

// Either a silent stream or the one that makes short calls, one after another.
struct Crowd::Caller {
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call;
  grpc::ByteBuffer answer;
  grpc::Status status;
};

Crowd::Crowd(const std::string& endpoint, Methods methods)
    : methods_(std::move(methods)), stub_(rpc::Connect(endpoint)) {
  for (int i = 0; i < kSilentStreams; ++i) {
    callers_.push_back(std::make_unique<Caller>());
    Caller& caller = *callers_.back();
    caller.context = rpc::ContextWithDeadline(kCallAtMost);
    caller.stream = stub_.PrepareCall(caller.context.get(), methods_.stream, &queue_);
    caller.stream->StartCall(&caller);
  }
  for (int i = 0; i < kShortCalls; ++i) {
    callers_.push_back(std::make_unique<Caller>());
    CallAgain(*callers_.back());
  }
  thread_ = std::thread([this] { Loop(); });
}

Crowd::~Crowd() {
  leaving_ = true;
  // Short calls end by themselves, and only the loop's thread knows their contexts.
  for (const auto& caller : callers_) {
    if (caller->stream != nullptr) caller->context->TryCancel();
  }
  thread_.join();
}

void Crowd::CallAgain(Caller& caller) {
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  caller.context = rpc::ContextWithDeadline(absl::Seconds(5));
  caller.call = stub_.PrepareUnaryCall(caller.context.get(), methods_.call, request, &queue_);
  caller.call->StartCall();
  caller.call->Finish(&caller.answer, &caller.status, &caller);
}

// A stream's begin is one event; its end is not waited for. The queue is empty when each short call
// has ended and no other was begun.
void Crowd::Loop() {
  void* tag = nullptr;
  bool well = false;
  int calls = kShortCalls;
  int begins = kSilentStreams;
  while ((calls > 0 || begins > 0) && queue_.Next(&tag, &well)) {
    Caller& caller = *static_cast<Caller*>(tag);
    if (caller.stream != nullptr) {
      --begins;
    } else if (leaving_) {
      --calls;
    } else {
      CallAgain(caller);
    }
  }
  queue_.Shutdown();
  while (queue_.Next(&tag, &well)) {
  }
}

}  // namespace oxbow::chaos
