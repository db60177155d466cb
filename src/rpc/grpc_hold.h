// SPDX-License-Identifier: Apache-2.0
// Keeps gRPC's event engine.
//
// gRPC ends its event engine with the last channel or server of a process, and the next channel
// makes another. If no descriptor is free at that moment, gRPC ends the process. A process that
// makes a channel for each call holds this, so that such a call fails instead.
#pragma once

#include <memory>

namespace grpc {
class Channel;
}  // namespace grpc

namespace oxbow::rpc {

class GrpcHold {
 public:
  GrpcHold();
  ~GrpcHold();
  GrpcHold(const GrpcHold&) = delete;
  GrpcHold& operator=(const GrpcHold&) = delete;

 private:
  const std::shared_ptr<grpc::Channel> idle_;  // It never connects.
};

}  // namespace oxbow::rpc
