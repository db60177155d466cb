// SPDX-License-Identifier: Apache-2.0
// Callers that take from a server what it has for callers: streams that never say anything, and
// more short calls at a time than it has threads for. All leave in the destructor.
#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace oxbow::chaos {

inline constexpr int kSilentStreams = 200;
inline constexpr int kShortCalls = 96;  // A server has 64 threads for them.

class Crowd {
 public:
  // Full method names ("/oxbow.v1.Reward/Score"); an empty message is a valid request of the call.
  struct Methods {
    std::string stream;
    std::string call;
  };
  Crowd(const std::string& endpoint, Methods methods);
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  struct Caller;
  void Loop();
  void CallAgain(Caller& caller);

  const Methods methods_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  std::atomic<bool> leaving_ = false;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::thread thread_;
};

}  // namespace oxbow::chaos
