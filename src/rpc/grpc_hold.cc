#include "rpc/grpc_hold.h"

#include <grpc/grpc.h>

namespace oxbow::rpc {

GrpcHold::GrpcHold() { grpc_init(); }
GrpcHold::~GrpcHold() { grpc_shutdown(); }

}  // namespace oxbow::rpc
