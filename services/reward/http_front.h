// SPDX-License-Identifier: Apache-2.0
// The rewards of a server once more, over HTTP, for trainers of Flow-Factory: each reward at
// http://HOST:PORT/NAME, which is the `server_url` of its remote rewards.
//
//   GET  /NAME/health    200 {"status": "ok"}
//   POST /NAME/compute   services/reward/compute_request.h
//
// Items go through the same queues as those of gRPC. Requests have a limit of bytes, items and
// time; `threads` of them are read at a time, as many more wait, and further connections wait in
// the kernel. A full queue is 503 with Retry-After. A connection serves one request. Callers are
// not authenticated and nothing is encrypted.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/reward/reward_metrics.h"
#include "services/reward/reward_service.h"
#include "services/reward/scorer_panel.h"

namespace oxbow::reward {

class HttpFront {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";  // HOST:PORT or [V6]:PORT; port 0: the system picks one.
    size_t items_max = 64;
    size_t body_bytes_max = size_t{64} << 20;
    absl::Duration body_time_max = absl::Seconds(60);
    absl::Duration silence_max =
        absl::Seconds(5);  // A caller may be silent so long in the middle of a request.
    int threads = 8;
  };

  // `panel`, `service` and `metrics` outlive it. kUnavailable if the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpFront>> Start(const Options& options,
                                                          const ScorerPanel& panel,
                                                          RewardService& service,
                                                          RewardMetrics& metrics);
  // Takes no more requests, drops what waits in queues and answers what is scored.
  ~HttpFront();

  const std::string& endpoint() const { return endpoint_; }

 private:
  class Impl;
  HttpFront(std::unique_ptr<Impl> impl, std::string endpoint);
  const std::unique_ptr<Impl> impl_;
  const std::string endpoint_;
};

}  // namespace oxbow::reward
