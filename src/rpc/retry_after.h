// SPDX-License-Identifier: Apache-2.0
// After how long a busy server wants to be asked again: trailing metadata of a call,
//
//   retry-after-ms: 4027        whole milliseconds, decimal, at most a day
//
// and a payload of the status on either side. A caller without this knowledge ignores it.
#pragma once

#include <grpcpp/client_context.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace oxbow::rpc {

inline constexpr char kRetryAfterKey[] = "retry-after-ms";

// The value of the metadata: rounded up, 0 to a day.
std::string RetryAfterText(absl::Duration pause);

absl::Status WithRetryAfter(absl::Status status, absl::Duration pause);
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

// The pause that the server of an ended call asks for. Nothing for what is no such number.
std::optional<absl::Duration> RetryAfterOf(const grpc::ClientContext& ended);

}  // namespace oxbow::rpc
