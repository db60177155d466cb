// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/health.h"

#include <google/protobuf/io/coded_stream.h>

#include <iostream>

#include "rpc/channel.h"
#include "rpc/health_service.h"
#include "rpc/port_language.h"
#include "rpc/status.h"
#include "rpc/tls_flags.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kServing = 1;

// HealthCheckResponse { ServingStatus status = 1; }
absl::StatusOr<bool> Response(const std::string& bytes) {
  if (bytes.empty()) return false;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  uint64_t value = 0;
  if (in.ReadTag() != 1 << 3 || !in.ReadVarint64(&value)) {
    return absl::InternalError("not an answer of grpc.health.v1");
  }
  return value == kServing;
}

}  // namespace

absl::StatusOr<bool> IsServing(const std::string& endpoint, absl::Duration timeout,
                               const std::string& service) {
  const rpc::ByteAnswer answer = rpc::CallBytes(rpc::Connect(endpoint), rpc::kHealthCheck, timeout,
                                                rpc::HealthRequest(service));
  if (!answer.status.ok()) return rpc::Explained(rpc::FromGrpc(answer.status), endpoint);
  return Response(answer.bytes);
}

int HealthExitCode(const absl::StatusOr<bool>& serving) {
  if (serving.ok()) return *serving ? 0 : 1;
  return serving.status().code() == absl::StatusCode::kUnavailable ? 2 : 3;
}

void AskHealth(CLI::App& command, int& exit_code) {
  struct Flags {
    std::string endpoint;
    std::string service;
    double timeout = 2;
    rpc::TlsOptions tls;
  };
  const auto flags = std::make_shared<Flags>();  // Lives as long as the callback below.
  command.footer(
      "Exit code: 0 serving, 1 not serving, 2 nobody listens, 3 the call failed.\n"
      "Example: oxbow health --addr 127.0.0.1:7070 --timeout 2s");
  command.add_option("--addr", flags->endpoint, "host:port of the service")
      ->required()
      ->envname("OXBOW_HEALTH_ADDR");
  command.add_option("--service", flags->service,
                     "a part of it, for example oxbow.v1.Reward/pickscore; default: all");
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
    const auto serving = IsServing(flags->endpoint, absl::Seconds(flags->timeout), flags->service);
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
