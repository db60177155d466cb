// SPDX-License-Identifier: Apache-2.0
#include "base/exit_code.h"

#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace oxbow {
namespace {

constexpr char kOutOfMemory[] = "oxbow/out_of_memory";  // The name of a payload without content.
constexpr char kDevice[] = "oxbow/device_error";        // Another one.
constexpr char kCode[] = "oxbow/exit_code";             // The code in digits.

struct Meaning {
  int exit_code;
  absl::StatusCode status;  // By which a process ends so.
  const char* words;
};

constexpr Meaning kMeanings[] = {
    {kExitUsage, absl::StatusCode::kInvalidArgument, "a flag, the config or a device does not fit"},
    {kExitUnavailable, absl::StatusCode::kUnavailable, "a peer or a disk is not there"},
    {kExitData, absl::StatusCode::kDataLoss, "a file is missing, is corrupt or does not fit"},
    {kExitFull, absl::StatusCode::kResourceExhausted, "a disk, a memory or another limit is full"},
    {kExitNotFinite, absl::StatusCode::kOutOfRange, "a loss or a gradient is not finite"},
    {kExitOutOfMemory, absl::StatusCode::kResourceExhausted, "the memory of a device is too small"},
    {kExitDeviceLost, absl::StatusCode::kAborted, "the GPU answers each call with an error"}};

// For codes that no status code stands for.
absl::Status WithCode(int exit_code, std::string_view message) {
  absl::Status status = absl::AbortedError(std::string(message));
  status.SetPayload(kCode, absl::Cord(absl::StrCat(exit_code)));
  return status;
}

std::optional<int> CodeIn(const absl::Status& status) {
  const auto digits = status.GetPayload(kCode);
  int code = 0;
  if (!digits.has_value() || !absl::SimpleAtoi(std::string(*digits), &code)) return std::nullopt;
  return code;
}

}  // namespace

absl::Status OutOfMemoryError(std::string_view message) {
  absl::Status status = absl::ResourceExhaustedError(std::string(message));
  status.SetPayload(kOutOfMemory, {});
  return status;
}

bool IsOutOfMemory(const absl::Status& status) {
  return status.GetPayload(kOutOfMemory).has_value();
}

absl::Status DeviceError(int exit_code, std::string_view message) {
  absl::Status status = ErrorOf(exit_code, message);
  status.SetPayload(kDevice, {});
  return status;
}

bool IsDeviceError(const absl::Status& status) { return status.GetPayload(kDevice).has_value(); }

const char* MeaningOf(int exit_code) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.exit_code == exit_code) return meaning.words;
  }
  return "its log has no reason";
}

bool EndsEarly(const absl::Status& status) {
  const int code = CodeIn(status).value_or(kExitOk);
  return code == kExitStopped || code == kExitDrained;
}

int ExitCodeOf(const absl::Status& status) {
  if (const std::optional<int> code = CodeIn(status)) return *code;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnavailable;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:  // The certificate does not fit.
      return kExitData;
    case absl::StatusCode::kResourceExhausted:
      return IsOutOfMemory(status) ? kExitOutOfMemory : kExitFull;
    case absl::StatusCode::kOutOfRange:
      return kExitNotFinite;
    default:
      return kExitFailure;
  }
}

absl::Status ErrorOf(int exit_code, std::string_view message) {
  if (exit_code == kExitOutOfMemory) return OutOfMemoryError(message);
  if (exit_code == kExitStopped || exit_code == kExitDrained || exit_code == kExitDeviceLost) {
    return WithCode(exit_code, message);
  }
  for (const Meaning& meaning : kMeanings) {
    if (meaning.exit_code == exit_code) return absl::Status(meaning.status, std::string(message));
  }
  return absl::InternalError(std::string(message));
}

bool IsFinal(int exit_code) {
  return exit_code == kExitUsage || exit_code == kExitData || exit_code == kExitOutOfMemory;
}

}  // namespace oxbow
