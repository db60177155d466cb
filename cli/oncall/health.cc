#include "cli/oncall/health.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "rpc/tls_flags.h"

namespace oxbow::cli {
namespace {

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr uint64_t kServing = 1;

// HealthCheckResponse { ServingStatus status = 1; }
absl::StatusOr<bool> Response(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return absl::InternalError("unreadable answer");
  google::protobuf::io::CodedInputStream in(slice.begin(), static_cast<int>(slice.size()));
  if (slice.size() == 0) return false;
  uint64_t value = 0;
  if (in.ReadTag() != 1 << 3 || !in.ReadVarint64(&value)) {
    return absl::InternalError("not an answer of grpc.health.v1");
  }
  return value == kServing;
}

}  // namespace

absl::StatusOr<bool> IsServing(const std::string& endpoint, absl::Duration timeout) {
  grpc::GenericStub stub(rpc::Connect(endpoint));
  grpc::CompletionQueue queue;
  const std::unique_ptr<grpc::ClientContext> context = rpc::ContextWithDeadline(timeout);
  auto call = stub.PrepareUnaryCall(context.get(), kCheck, {}, &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);  // Returns at the context's deadline at the latest.
  if (!status.ok()) return rpc::FromGrpc(status);
  return Response(answer);
}

int HealthExitCode(const absl::StatusOr<bool>& serving) {
  if (serving.ok()) return *serving ? 0 : 1;
  return serving.status().code() == absl::StatusCode::kUnavailable ? 2 : 3;
}

void AskHealth(CLI::App& command, int& exit_code) {
  struct Flags {
    std::string endpoint;
    double timeout = 2;
    rpc::TlsOptions tls;
  };
  const auto flags = std::make_shared<Flags>();  // Lives as long as the callback below.
  command.footer(
      "Exit code: 0 serving, 1 not serving, 2 nobody listens, 3 the call failed.\n"
      "Example: oxbow health --addr 127.0.0.1:7001 --timeout 2s");
  command.add_option("--addr", flags->endpoint, "host:port of the service")
      ->required()
      ->envname("OXBOW_HEALTH_ADDR");
  command.add_option("--timeout", flags->timeout, "for example 2s or 500ms; default 2s")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"ms", 1e-3}, {"s", 1}, {"m", 60}}))
      ->check(CLI::PositiveNumber);
  rpc::AddTlsFlags(command, flags->tls);
  command.callback([flags, &exit_code] {
    if (const absl::Status tls = rpc::UseTls(flags->tls).status(); !tls.ok()) {
      exit_code = 3;
      std::cerr << "oxbow health: " << tls.message() << "\n";
      return;
    }
    const auto serving = IsServing(flags->endpoint, absl::Seconds(flags->timeout));
    exit_code = HealthExitCode(serving);
    if (!serving.ok()) {
      std::cerr << "oxbow health: " << serving.status().message() << ": " << flags->endpoint
                << "\n";
    } else {
      std::cout << (*serving ? "SERVING" : "NOT_SERVING") << "\n";
    }
  });
}

void AddHealth(CLI::App& app, int& exit_code) {
  AskHealth(*app.add_subcommand("health", "Ask a service whether it serves"), exit_code);
}

}  // namespace oxbow::cli
