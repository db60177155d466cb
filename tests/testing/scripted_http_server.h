// SPDX-License-Identifier: Apache-2.0
// An HTTP server on 127.0.0.1 whose answers a test writes byte for byte, so that they can be wrong
// in every way.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace oxbow::testing {

class ScriptedHttpServer {
 public:
  struct Request {
    std::string head;  // Request line and headers, as they came.
    std::string body;
  };
  // The bytes to send, after which the connection ends. nullopt: nothing is ever said, and the
  // connection stays open until the caller is gone. Called from a thread per connection.
  using Script = std::function<std::optional<std::string>(const Request&)>;

  explicit ScriptedHttpServer(Script script);
  ~ScriptedHttpServer();
  ScriptedHttpServer(const ScriptedHttpServer&) = delete;
  ScriptedHttpServer& operator=(const ScriptedHttpServer&) = delete;

  std::string url() const;  // http://127.0.0.1:PORT
  std::vector<Request> requests() const;

 private:
  class Listener;
  void Serve(int connection);

  const Script script_;
  mutable absl::Mutex mutex_;
  std::vector<Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Listener> listener_;  // Last: its threads use the others.
};

// A whole answer. `headers` are lines that end in \r\n.
std::string HttpText(int code, const std::string& body,
                     const std::string& headers = "Content-Type: application/json\r\n");

}  // namespace oxbow::testing
