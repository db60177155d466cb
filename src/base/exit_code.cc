#include "base/exit_code.h"

namespace oxbow {

int ExitCodeOf(const absl::Status& status) {
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
      return kExitFull;
    case absl::StatusCode::kOutOfRange:
      return kExitNotFinite;
    default:
      return kExitFailure;
  }
}

bool IsFinal(int exit_code) { return exit_code == kExitUsage || exit_code == kExitData; }

}  // namespace oxbow
