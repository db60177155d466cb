// SPDX-License-Identifier: Apache-2.0
#include "rpc/retry_after.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace oxbow::rpc {
namespace {

constexpr int64_t kMillisecondsMax = 24 * 3600 * 1000;

std::optional<absl::Duration> Parse(const std::string& text) {
  int64_t milliseconds = 0;
  if (!absl::SimpleAtoi(text, &milliseconds)) return std::nullopt;
  if (milliseconds < 0 || milliseconds > kMillisecondsMax) return std::nullopt;
  return absl::Milliseconds(milliseconds);
}

}  // namespace

std::string RetryAfterText(absl::Duration pause) {
  const int64_t milliseconds = absl::ToInt64Milliseconds(absl::Ceil(pause, absl::Milliseconds(1)));
  return absl::StrCat(std::clamp<int64_t>(milliseconds, 0, kMillisecondsMax));
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration pause) {
  status.SetPayload(kRetryAfterKey, absl::Cord(RetryAfterText(pause)));
  return status;
}

std::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const auto text = status.GetPayload(kRetryAfterKey);
  return text.has_value() ? Parse(std::string(*text)) : std::nullopt;
}

std::optional<absl::Duration> RetryAfterOf(const grpc::ClientContext& ended) {
  const auto& metadata = ended.GetServerTrailingMetadata();
  const auto found = metadata.find(kRetryAfterKey);
  if (found == metadata.end()) return std::nullopt;
  return Parse(std::string(found->second.data(), found->second.size()));
}

}  // namespace oxbow::rpc
