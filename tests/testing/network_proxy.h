// SPDX-License-Identifier: Apache-2.0
// A TCP proxy between two processes under test, whose connection can be disturbed while they talk.
//
//   auto proxy = NetworkProxy::Start("127.0.0.1:7000").value();   // one target
//   auto all = NetworkProxy::Start("").value();                   // HTTP CONNECT: any target;
//                                                                 // grpc_proxy=http://ENDPOINT,
//                                                                 // OXBOW_HTTP_PROXY=1
//   proxy->Delay(absl::Milliseconds(50));   // each way
//   proxy->Drop();      // no bytes pass and no side is told, as with a pulled cable
//   proxy->Reset();     // every connection is reset; new ones too, until Heal
//   proxy->HalfOpen();  // the targets see their connections end, the clients are not told
//   proxy->Garble("name");  // a bit of each "name" that a target sends is flipped
//   proxy->Heal();      // new connections pass, dropped ones continue
//
// Each call has taken effect when it returns.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace oxbow::testing {

class NetworkProxy {
 public:
  // Listens on 127.0.0.1. `target` is host:port with a numeric IPv4 host; empty: each connection
  // names its own target in an HTTP CONNECT line.
  static absl::StatusOr<std::unique_ptr<NetworkProxy>> Start(const std::string& target);
  ~NetworkProxy();
  NetworkProxy(const NetworkProxy&) = delete;
  NetworkProxy& operator=(const NetworkProxy&) = delete;

  const std::string& endpoint() const { return endpoint_; }

  void Delay(absl::Duration each_way);
  void Drop();
  void Reset();
  void HalfOpen();
  // Flips a bit of the first letter, where the text comes in one piece. `text` is not empty.
  void Garble(std::string text);
  void Heal();

  uint64_t connections() const;  // Total so far.

 private:
  class Connection;

  NetworkProxy(int listener, std::string endpoint, std::string target);
  void Do(std::function<void()> change);
  void Loop();
  void RunChanges();
  void AcceptAll();

  const int listener_;
  const int wake_;  // eventfd
  const std::string endpoint_;
  const std::string target_;

  mutable absl::Mutex mutex_;
  std::vector<std::function<void()>> changes_ ABSL_GUARDED_BY(mutex_);
  uint64_t changes_asked_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t changes_made_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t accepted_ ABSL_GUARDED_BY(mutex_) = 0;

  // Used only by the loop.
  bool stopping_ = false;
  bool dropping_ = false;
  bool refusing_ = false;
  absl::Duration delay_ = absl::ZeroDuration();
  std::string garbled_;  // Empty: none.
  std::list<std::unique_ptr<Connection>> connections_;
  std::thread thread_;
};

}  // namespace oxbow::testing
