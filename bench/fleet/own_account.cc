// SPDX-License-Identifier: Apache-2.0
#include "bench/fleet/own_account.h"

#include <sys/resource.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "telemetry/metrics.h"
#include "tests/testing/own_memory.h"

namespace oxbow::bench {

OwnAccount::OwnAccount() : before_(testing::ForgetPeakMemory()) {}

void OwnAccount::Print(const std::string& more) const {
  const auto most = static_cast<double>(testing::OwnMemory("VmHWM") - before_);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  std::string refused;
  for (const auto& [call, count] : telemetry::RefusedCalls::This().counts()) {
    absl::StrAppend(&refused, refused.empty() ? "" : ",", call.first, ":", count);
  }
  std::printf("END mib=%.1f cpu_s=%.2f refused=%s %s\n", most / (1 << 20),
              seconds(usage.ru_utime) + seconds(usage.ru_stime), refused.c_str(), more.c_str());
  std::fflush(stdout);
}

}  // namespace oxbow::bench
