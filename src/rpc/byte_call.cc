// SPDX-License-Identifier: Apache-2.0
#include "rpc/byte_call.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "rpc/channel.h"

namespace oxbow::rpc {

ByteAnswer CallBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     absl::Duration timeout, const std::string& request) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const std::unique_ptr<grpc::ClientContext> context = ContextWithDeadline(timeout);
  const grpc::Slice sent(request);
  auto call = stub.PrepareUnaryCall(context.get(), method, grpc::ByteBuffer(&sent, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  ByteAnswer answer;
  call->Finish(&response, &answer.status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);  // Returns at the deadline at the latest.
  grpc::Slice slice;
  if (!answer.status.ok()) return answer;
  answer.status = response.DumpToSingleSlice(&slice);
  if (answer.status.ok()) answer.bytes.assign(slice.begin(), slice.end());
  return answer;
}

}  // namespace oxbow::rpc
