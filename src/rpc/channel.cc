// SPDX-License-Identifier: Apache-2.0
#include "rpc/channel.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <chrono>
#include <string_view>

#include "base/listening_sockets.h"
#include "rpc/tls.h"

namespace oxbow::rpc {
namespace {

std::atomic<bool> uses_http_proxy{false};

int PingEveryMs(Pings pings) {
  switch (pings) {
    case Pings::kOften:
      return 10'000;
    case Pings::kDuringCalls:
      return 60'000;
    case Pings::kRarely:
      return 310'000;  // The limit, and some room for a network that hurries.
  }
  return 0;
}

}  // namespace

void UseHttpProxy(bool used) { uses_http_proxy = used; }

bool UsesHttpProxy() { return uses_http_proxy; }

grpc::ChannelArguments ArgumentsOf(Pings pings) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  // gRPC obeys the environment by default, which names a proxy for the world outside.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, uses_http_proxy ? 1 : 0);
  // Both sides of a run notice within 20 s that a peer was cut off, even if they only listen.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, PingEveryMs(pings));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  // Also for idle connections; else only the next call would notice.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, pings == Pings::kOften ? 1 : 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // The time for one attempt, whatever its name says: for TCP, TLS and HTTP/2 over a slow line.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  // A service that moved has another address behind its name; else a name is asked for twice a
  // minute.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 2'000);
  return arguments;
}

std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint, Pings pings) {
  grpc::ChannelArguments arguments = ArgumentsOf(pings);
  const std::shared_ptr<grpc::ChannelCredentials> credentials = ClientCredentials(arguments);
  return grpc::CreateCustomChannel(WithBrackets(endpoint), credentials, arguments);
}

std::unique_ptr<grpc::ClientContext> ContextWithDeadline(absl::Duration timeout) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
  if (const std::optional<Trace> trace = CurrentTrace(); trace.has_value()) {
    context->AddMetadata(kTraceparent, Traceparent(*trace));
  }
  return context;
}

std::optional<Trace> TraceOf(const grpc::ServerContextBase* context) {
  if (context == nullptr) return std::nullopt;
  const auto& metadata = context->client_metadata();
  const auto found = metadata.find(kTraceparent);
  if (found == metadata.end()) return std::nullopt;
  return ParseTraceparent(std::string_view(found->second.data(), found->second.size()));
}

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

GrpcHold::GrpcHold()
    : idle_(grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials())) {}
GrpcHold::~GrpcHold() = default;

}  // namespace oxbow::rpc
