// SPDX-License-Identifier: Apache-2.0
// One served stream, written as a coroutine. It reads like a blocking handler, but while it waits
// it costs memory and no thread:
//
//   rpc::Handler MyService::Insert(InsertStream& stream) {
//     v1::InsertRequest request;
//     while (co_await stream.Read(request)) {
//       ...                                                  // On a thread of the StreamRunner.
//       if (!co_await stream.Write(response)) break;         // The peer is gone.
//     }
//     co_return absl::OkStatus();                            // What the caller gets.
//   }
//
// A service makes its methods such coroutines in its constructor, whatever their kind: a unary side
// is a stream of one message.
//
//   MarkMethodStreamed(kInsertMethod, nullptr);
//   MarkMethodCallback(kInsertMethod, rpc::StreamHandler<v1::InsertRequest, v1::InsertResponse>(
//                                         runner_, [this](InsertStream& s) { return Insert(s); }));
//
// The function given to StreamHandler must not itself be a coroutine with captures: they would be
// gone after its first wait. Only the coroutine awaits; Send, Wake, End, AskAgainIn and the getters
// are thread-safe.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <coroutine>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/trace.h"
#include "rpc/stream_runner.h"

namespace oxbow::rpc {

class StreamBase;

// A part of a Handler, itself a coroutine. It runs while the handler awaits it, by name, and gives
// the status that it returns:
//
//   rpc::Part part = SendAll(stream);
//   const absl::Status sent = co_await part;
class Part {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;
  struct Ending {
    bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(Handle handle) noexcept;
    void await_resume() noexcept {}
  };
  struct promise_type {
    Part get_return_object() { return Part(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    Ending final_suspend() noexcept { return {}; }
    void return_value(absl::Status status) { result = std::move(status); }
    void unhandled_exception() { std::terminate(); }
    std::coroutine_handle<> handler;
    absl::Status result;
  };
  Part(Part&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Part& operator=(Part&&) = delete;
  ~Part() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> handler) {
    handle_.promise().handler = handler;
    return handle_;
  }
  absl::Status await_resume() { return std::move(handle_.promise().result); }

 private:
  explicit Part(Handle handle) : handle_(handle) {}
  Handle handle_;
};

inline std::coroutine_handle<> Part::Ending::await_suspend(Handle handle) noexcept {
  return handle.promise().handler;
}

// The return type of a stream's coroutine. `co_return status` ends the call with that status.
class Handler {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;
  struct Ending {
    bool await_ready() noexcept { return false; }
    void await_suspend(Handle handle) noexcept;
    void await_resume() noexcept {}
  };
  struct promise_type {
    Handler get_return_object() { return {Handle::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    Ending final_suspend() noexcept { return {}; }
    void return_value(absl::Status status) { result = std::move(status); }
    void unhandled_exception() { std::terminate(); }
    StreamBase* stream = nullptr;
    absl::Status result;
  };
  Handle handle;
};

// The part that does not depend on the types of the messages.
class StreamBase : public std::enable_shared_from_this<StreamBase> {
 public:
  virtual ~StreamBase() = default;

  // Ends the coroutine's Wait, or its next one.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the call with this status, once what is being written has been: what the coroutine awaits
  // fails, and what it returns does not count.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // The call will end with this as trailing metadata (rpc/retry.h); the longest pause counts.
  void AskAgainIn(absl::Duration pause) ABSL_LOCKS_EXCLUDED(mutex_);

  // True once the call was cancelled, by the caller or by its deadline. It also wakes.
  bool cancelled() const ABSL_LOCKS_EXCLUDED(mutex_);
  // True if the stream was ended because its peer was idle for idle_max.
  bool expired() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The caller's trace; see rpc/channel.h.
  const std::optional<Trace>& trace() const { return trace_; }
  const grpc::ServerContextBase& context() const { return context_; }

 protected:
  enum class Waits { kNothing, kRead, kWrite, kWake };

  StreamBase(grpc::CallbackServerContext& context, StreamRunner& runner,
             std::optional<absl::Duration> idle_max);

  void Begin(Handler handler);
  void Await(Waits what, std::coroutine_handle<> handler, absl::Duration limit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Resume() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishWith(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool SuspendForWake(std::coroutine_handle<> handler, absl::Duration limit)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Written() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // All that was to be written.
  void Cancelled() ABSL_LOCKS_EXCLUDED(mutex_);
  void Done() ABSL_LOCKS_EXCLUDED(mutex_);

  virtual void DoFinish(const grpc::Status& status) = 0;

  mutable absl::Mutex mutex_;
  const absl::Duration idle_max_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // gRPC has the status.

 private:
  friend class StreamRunner;
  friend struct Handler::Ending;
  // The wait of the coroutine, if it waits.
  struct Pause {
    Waits what = Waits::kNothing;
    std::coroutine_handle<> handler;
    absl::Duration until;                                // When the wait is over.
    absl::Duration alarm_at = absl::InfiniteDuration();  // The alarm that is set.
  };
  // The end of the call, as far as it is known.
  struct Reply {
    std::optional<absl::Status> status;  // To be sent after the writes.
    absl::Duration ask_again_in;
  };
  void Expire(absl::Duration now) ABSL_LOCKS_EXCLUDED(mutex_);
  void Ended(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetAlarm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext& context_;
  StreamRunner& runner_;
  const std::optional<Trace> trace_;
  std::shared_ptr<StreamBase> self_ ABSL_GUARDED_BY(mutex_);  // Until both sides are through.
  Pause pause_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool expired_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // The coroutine is through.
  bool done_ ABSL_GUARDED_BY(mutex_) = false;   // gRPC is.
  Reply reply_ ABSL_GUARDED_BY(mutex_);
};

// gRPC never calls a reaction from inside Start* or Finish, so these are called under the mutex.
template <typename Request, typename Response>
class Stream final : public StreamBase, public grpc::ServerBidiReactor<Request, Response> {
 public:
  using Function = std::function<Handler(Stream&)>;

  // `idle_max` empty: the runner's.
  static Stream* Start(grpc::CallbackServerContext& context, StreamRunner& runner,
                       const Function& function, std::optional<absl::Duration> idle_max) {
    const std::shared_ptr<Stream> stream(new Stream(context, runner, idle_max));
    stream->Begin(function(*stream));
    return stream.get();
  }

  // co_await: fills `request` and is true; false when the peer has closed its side or is gone.
  auto Read(Request& request) {
    struct Reading {
      Stream& stream;
      Request& request;
      bool await_ready() { return false; }
      bool await_suspend(std::coroutine_handle<> handler) {
        return stream.SuspendForRead(handler, request);
      }
      bool await_resume() {
        absl::MutexLock lock(&stream.mutex_);
        return stream.read_ok_;
      }
    };
    return Reading{*this, request};
  }

  // co_await: true when this message and those before it are on their way; false when the peer is
  // gone. Waits as long as the peer is slow.
  //
  // The message must have a name in the coroutine, which is moved from: GCC 12 copies a nameless
  // aggregate of a co_await expression bit by bit.
  auto Write(Response response) {
    struct Writing {
      Stream& stream;
      bool await_ready() { return false; }
      bool await_suspend(std::coroutine_handle<> handler) {
        return stream.SuspendForWrite(handler);
      }
      bool await_resume() {
        absl::MutexLock lock(&stream.mutex_);
        return !stream.broken_ && !stream.finished_;
      }
    };
    Send(std::move(response));
    return Writing{*this};
  }

  // co_await: until Wake, cancellation or `limit` after now; the caller looks which.
  auto Wait(absl::Duration limit = absl::InfiniteDuration()) {
    struct Waiting {
      Stream& stream;
      absl::Duration limit;
      bool await_ready() { return false; }
      bool await_suspend(std::coroutine_handle<> handler) {
        return stream.SuspendForWake(handler, limit);
      }
      void await_resume() {}
    };
    return Waiting{*this, limit};
  }

  // Queues a message without waiting. Dropped when the peer is gone. From a peer that does not take
  // what is queued, no more than kUntakenMax of them, nothing more is read.
  void Send(Response response) {
    absl::MutexLock lock(&mutex_);
    if (finished_ || broken_) return;
    outgoing_.push_back(std::move(response));
    if (!std::exchange(writing_, true)) WriteFirst();
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    read_ok_ = ok;
    Resume();  // Only the coroutine reads, and it waits.
  }
  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    outgoing_.pop_front();
    if (!ok) {
      broken_ = true;
      outgoing_.clear();
    }
    if (postponed_ != nullptr && outgoing_.size() < kUntakenMax) {
      this->StartRead(std::exchange(postponed_, nullptr));
    }
    if (!outgoing_.empty()) return WriteFirst();
    Written();
  }
  void OnCancel() override { Cancelled(); }
  void OnDone() override { Done(); }

 private:
  Stream(grpc::CallbackServerContext& context, StreamRunner& runner,
         std::optional<absl::Duration> idle_max)
      : StreamBase(context, runner, idle_max) {}

  bool SuspendForRead(std::coroutine_handle<> handler, Request& request) {
    absl::MutexLock lock(&mutex_);
    read_ok_ = false;
    if (finished_) return false;
    Await(Waits::kRead, handler, idle_max_);
    if (outgoing_.size() >= kUntakenMax) {
      postponed_ = &request;  // A write is under way, and its end begins the read.
    } else {
      this->StartRead(&request);
    }
    return true;
  }

  bool SuspendForWrite(std::coroutine_handle<> handler) {
    absl::MutexLock lock(&mutex_);
    if (!writing_) return false;
    Await(Waits::kWrite, handler, idle_max_);
    return true;
  }

  void DoFinish(const grpc::Status& status) override { this->Finish(status); }

  // One that others wait behind need not leave at once: they then travel together.
  void WriteFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    grpc::WriteOptions options;
    if (outgoing_.size() > 1) options.set_buffer_hint();
    this->StartWrite(&outgoing_.front(), options);
  }

  static constexpr size_t kUntakenMax = 256;

  bool read_ok_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;            // A write failed.
  std::deque<Response> outgoing_ ABSL_GUARDED_BY(mutex_);  // The first is being written.
  Request* postponed_ ABSL_GUARDED_BY(mutex_) = nullptr;   // The message that a Read waits to fill.
};

// Serves a method by coroutines. `runner` outlives the server.
template <typename Request, typename Response>
grpc::internal::MethodHandler* StreamHandler(
    StreamRunner& runner, typename Stream<Request, Response>::Function function,
    std::optional<absl::Duration> idle_max = std::nullopt) {
  return new grpc::internal::CallbackBidiHandler<Request, Response>(
      [&runner, function = std::move(function), idle_max](grpc::CallbackServerContext* context) {
        return Stream<Request, Response>::Start(*context, runner, function, idle_max);
      });
}

}  // namespace oxbow::rpc
