// SPDX-License-Identifier: Apache-2.0
#include "base/exit_code.h"

#include "base/status_macros.h"
#include "gtest/gtest.h"

namespace oxbow {
namespace {

// The place where an error happened is added on its way up; the exit code and what callers ask of
// it stay.
TEST(ExitCodeTest, AnErrorWithItsPlaceEndsTheProcessAsTheErrorAlone) {
  for (int code = kExitUsage; code <= kExitDeviceLost; ++code) {
    const absl::Status error = ErrorOf(code, "why");
    const absl::Status placed = Annotate(Annotate(error, "entry 5"), "read");
    EXPECT_EQ(ExitCodeOf(placed), ExitCodeOf(error)) << code;
    EXPECT_EQ(EndsEarly(placed), EndsEarly(error)) << code;
    EXPECT_EQ(placed.message(), "read: entry 5: why");
  }
  EXPECT_TRUE(IsOutOfMemory(Annotate(OutOfMemoryError("full"), "batch")));
  EXPECT_TRUE(IsDeviceError(Annotate(DeviceError(kExitDeviceLost, "lost"), "batch")));
  EXPECT_EQ(ExitCodeOf(Annotate(DeviceError(kExitDeviceLost, "lost"), "batch")), kExitDeviceLost);
  EXPECT_TRUE(Annotate(absl::OkStatus(), "read").ok());
}

}  // namespace
}  // namespace oxbow
