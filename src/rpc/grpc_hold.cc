// SPDX-License-Identifier: Apache-2.0
#include "rpc/grpc_hold.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

namespace oxbow::rpc {

GrpcHold::GrpcHold()
    : idle_(grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials())) {}
GrpcHold::~GrpcHold() = default;

}  // namespace oxbow::rpc
