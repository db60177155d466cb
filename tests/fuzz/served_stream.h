// SPDX-License-Identifier: Apache-2.0
// A caller of one stream, without a network: it takes gRPC's place below a service's reactor, in
// the thread of the fuzz target. A message goes through protobuf's parser as gRPC would do it; one
// that does not parse ends the call. What the service writes is taken at once.
//
// `settle` returns when the service has done what it can do with what it has: coroutines run in it,
// reactors have run before.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "base/check.h"
#include "rpc/stream_runner.h"

namespace oxbow::fuzz {

using Settle = std::function<void()>;

// Requires a runner without threads.
inline Settle RunnerOf(rpc::StreamRunner& runner) {
  return [&runner] { runner.RunReady(); };
}
inline Settle AtOnce() {
  return [] {};
}
// Returns when every stream has ended. A thread of the service may wake one that has its status.
inline void RunToTheEnd(rpc::StreamRunner& runner) {
  for (runner.RunReady(); runner.streams() > 0; runner.RunReady()) std::this_thread::yield();
}
// All in one thread, and no stream is ever too slow.
inline rpc::StreamRunner::Options NoThreads() {
  return {.threads = 0, .idle_max = absl::InfiniteDuration()};
}

template <typename Request, typename Response>
class ServedStream final : public grpc::ServerCallbackReaderWriter<Request, Response> {
 public:
  using Reactor = grpc::ServerBidiReactor<Request, Response>;
  using OnAnswer = std::function<void(const Response&)>;

  ServedStream(Reactor* reactor, Settle settle, OnAnswer answer)
      : reactor_(reactor), settle_(std::move(settle)), answer_(std::move(answer)) {
    this->BindReactor(reactor);
    Serve();
  }
  ~ServedStream() override { End(/*cancelled=*/false); }

  // False if the service has ended the call, or does not read.
  bool Send(std::string_view bytes) {
    Request* const message = TakeRead();
    if (message == nullptr) return false;
    if (!message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      reactor_->OnReadDone(false);
      End(/*cancelled=*/true);
      return false;
    }
    reactor_->OnReadDone(true);
    Serve();
    return true;
  }

  // Closes the caller's side, or breaks the call off, and waits until the service has ended it. A
  // call that waits for something else, as for credit, is broken off.
  void End(bool cancelled) {
    if (reactor_ == nullptr) return;
    if (cancelled) reactor_->OnCancel();
    for (Serve(); !status().has_value(); Serve()) {
      if (TakeRead() != nullptr) {
        reactor_->OnReadDone(false);
      } else if (!std::exchange(cancelled, true)) {
        reactor_->OnCancel();
      } else {
        std::this_thread::yield();
      }
    }
    Serve();
    std::exchange(reactor_, nullptr)->OnDone();
  }

  // Takes what the service has to say, until it waits for the caller.
  void Serve() {
    while (true) {
      settle_();
      const Response* written;
      {
        const std::lock_guard lock(mutex_);
        written = std::exchange(written_, nullptr);
      }
      if (written == nullptr) return;
      answer_(*written);
      reactor_->OnWriteDone(true);
    }
  }

  // The same where the service was given nothing new by this caller, and has had its time.
  void ServeWritten() {
    bool written;
    {
      const std::lock_guard lock(mutex_);
      written = written_ != nullptr;
    }
    if (written) Serve();
  }

  bool ended() const { return reactor_ == nullptr; }
  // The service waits for the next message.
  bool reads() const {
    const std::lock_guard lock(mutex_);
    return read_ != nullptr;
  }
  std::optional<grpc::Status> status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  void SendInitialMetadata() override {}
  void Read(Request* message) override {
    const std::lock_guard lock(mutex_);
    OXBOW_CHECK(read_ == nullptr && !status_.has_value()) << "a second read";
    read_ = message;
  }
  void Write(const Response* message, grpc::WriteOptions) override {
    const std::lock_guard lock(mutex_);
    OXBOW_CHECK(written_ == nullptr && !status_.has_value()) << "a second write";
    written_ = message;
  }
  void Finish(grpc::Status status) override {
    const std::lock_guard lock(mutex_);
    OXBOW_CHECK(!status_.has_value()) << "ended twice";
    status_ = std::move(status);
  }
  void WriteAndFinish(const Response*, grpc::WriteOptions, grpc::Status status) override {
    Finish(std::move(status));
  }

 private:
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {}

  Request* TakeRead() {
    if (reactor_ == nullptr) return nullptr;
    const std::lock_guard lock(mutex_);
    return std::exchange(read_, nullptr);
  }

  Reactor* reactor_;
  const Settle settle_;
  const OnAnswer answer_;
  mutable std::mutex mutex_;
  Request* read_ = nullptr;
  const Response* written_ = nullptr;
  std::optional<grpc::Status> status_;
};

// The caller of a stream that only the service writes.
template <typename Response>
class ServedWriter final : public grpc::ServerCallbackWriter<Response> {
 public:
  using Reactor = grpc::ServerWriteReactor<Response>;
  using OnAnswer = std::function<void(const Response&)>;

  ServedWriter(Reactor* reactor, OnAnswer answer) : reactor_(reactor), answer_(std::move(answer)) {
    this->BindReactor(reactor);
    Serve();
  }
  ~ServedWriter() override {
    if (!status_.has_value()) reactor_->OnCancel();
    Serve();
    OXBOW_CHECK(status_.has_value()) << "the service does not end a call that was cancelled";
    reactor_->OnDone();
  }

  // Takes all that the service has to say.
  void Serve() {
    while (const Response* written = std::exchange(written_, nullptr)) {
      answer_(*written);
      reactor_->OnWriteDone(true);
    }
  }

  void SendInitialMetadata() override {}
  void Write(const Response* message, grpc::WriteOptions) override {
    OXBOW_CHECK(written_ == nullptr && !status_.has_value()) << "a second write";
    written_ = message;
  }
  void Finish(grpc::Status status) override {
    OXBOW_CHECK(!status_.has_value()) << "ended twice";
    status_ = std::move(status);
  }
  void WriteAndFinish(const Response*, grpc::WriteOptions, grpc::Status status) override {
    Finish(std::move(status));
  }

 private:
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {}

  Reactor* const reactor_;
  const OnAnswer answer_;
  const Response* written_ = nullptr;
  std::optional<grpc::Status> status_;
};

}  // namespace oxbow::fuzz
