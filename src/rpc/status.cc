// SPDX-License-Identifier: Apache-2.0
#include "rpc/status.h"

#include <iterator>
#include <string>

#include "absl/strings/match.h"

namespace oxbow::rpc {

// Both libraries use the numbers of google.rpc.Code.
grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // Text of rpc/call_checks.h about a server; gRPC makes UNAVAILABLE of it, which would be retried.
  constexpr char kOwnCheck[] = "Getting metadata from plugin failed with error: ";
  if (absl::StartsWith(status.error_message(), kOwnCheck)) {
    return absl::PermissionDeniedError(status.error_message().substr(std::size(kOwnCheck) - 1));
  }
  // The words of servers in C++ and in Python, if a call is none of theirs.
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED &&
      (status.error_message().empty() || status.error_message() == "Method not found!")) {
    return absl::UnimplementedError(
        "another service listens there (is it the address of another process of the run?)");
  }
  const bool stream_removed = status.error_code() == grpc::StatusCode::UNKNOWN &&
                              status.error_message().find("Stream removed") != std::string::npos;
  const bool too_large = status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
                         status.error_message().find("larger than max") != std::string::npos;
  return absl::Status(stream_removed ? absl::StatusCode::kUnavailable
                      : too_large    ? absl::StatusCode::kInvalidArgument
                                     : static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
}

}  // namespace oxbow::rpc
