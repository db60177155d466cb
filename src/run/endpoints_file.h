// SPDX-License-Identifier: Apache-2.0
// Where the processes of a run are, and its buffers' directories.
//
// runs/NAME/endpoints.json: where the processes of a live run listen, for `oxbow status` and
// scrapers. `oxbow train` writes it, or a learner that was started by hand.
//
//   {"supervisor_pid":12, "host":"box",
//    "services":[{"name":"learner","grpc":"127.0.0.1:1","metrics":"127.0.0.1:2","pid":34},
//                {"name":"learner-1","grpc":"127.0.0.1:3","metrics":"127.0.0.1:4"},
//                {"name":"rollout_worker-1", ..., "trouble":"ended with exit code 10, 3 times
//                ..."}],
//    "tls":{"ca":"/tls/ca.crt", "cert":"/tls/tls.crt", "key":"/tls/tls.key", "name":"oxbow",
//           "roles":true}}
//
// "learner-1" is rank 1 of the learner, a process that the learner started. Without TLS there is no
// "tls".
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::run {

struct ServiceEndpoint {
  std::string name;
  std::string grpc;
  std::string metrics;
  pid_t pid = 0;        // 0: neither the starter nor a child of it.
  std::string trouble;  // Why it does not live, and when it starts again; empty: it lives.
};

// The files of TLS that the writer uses, for those who ask the run on its machine.
struct RunTls {
  std::string ca, cert, key;  // Empty: no TLS.
  std::string name;
  bool roles = true;
};

absl::Status WriteEndpoints(const std::filesystem::path& run_dir,
                            const std::vector<ServiceEndpoint>& services, const RunTls& tls = {});

// The process that started the run.
struct RunStarter {
  pid_t pid = 0;
  std::string host;  // Its machine; empty in files of an older binary.
};

// kNotFound if the run was never started; kDataLoss if the file is damaged.
absl::StatusOr<std::vector<ServiceEndpoint>> ReadEndpoints(const std::filesystem::path& run_dir);
absl::StatusOr<RunStarter> ReadStarter(const std::filesystem::path& run_dir);
RunTls ReadTls(const std::filesystem::path& run_dir);  // Empty, if the file does not say.

// Where the replay buffers that `oxbow train` starts keep their entries.
//
// One directory per shard, in the order of shards: RUN/replay, or RUN/replay-00, RUN/replay-01, ...
std::vector<std::filesystem::path> ReplayDirectories(const std::filesystem::path& run_dir,
                                                     uint32_t shards);

}  // namespace oxbow::run
