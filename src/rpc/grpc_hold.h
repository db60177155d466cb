// Keeps gRPC initialised.
//
// gRPC ends its event engine with the last channel or server of a process, and a later call makes
// another. If no descriptor is free at that moment, gRPC ends the process. A process that makes a
// channel for each call holds this, so that such a call fails instead.
#pragma once

namespace oxbow::rpc {

class GrpcHold {
 public:
  GrpcHold();
  ~GrpcHold();
  GrpcHold(const GrpcHold&) = delete;
  GrpcHold& operator=(const GrpcHold&) = delete;
};

}  // namespace oxbow::rpc
