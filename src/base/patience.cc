// SPDX-License-Identifier: Apache-2.0
#include "base/patience.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

namespace oxbow {
namespace {

constexpr absl::Duration kPauseFirst = absl::Seconds(1);
constexpr absl::Duration kPauseMax = absl::Seconds(60);

}  // namespace

bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         (absl::IsResourceExhausted(status) && !IsOutOfMemory(status));
}

absl::Duration Patience::Failed() {
  const absl::Duration now = clock_.Now();
  if (failures_++ == 0) first_ = now;
  const absl::Duration left = first_ + limit_ - now;
  over_ = left <= absl::ZeroDuration();
  const absl::Duration pause =
      std::min(kPauseFirst * (1 << std::min(failures_ - 1, uint32_t{10})), kPauseMax);
  return over_ ? pause : std::min(pause, left);
}

absl::Status Insist(const Clock& clock, absl::Duration limit,
                    const std::function<absl::Status()>& attempt,
                    const std::function<absl::Status(const absl::Status&, absl::Duration)>& wait) {
  Patience patience(clock, limit);
  while (true) {
    const absl::Status status = attempt();
    if (status.ok() || !MayPass(status)) return status;
    const absl::Duration pause = patience.Failed();
    if (patience.over()) {
      return Annotate(status, absl::StrCat("tried ", patience.failures(), " times over ",
                                           absl::FormatDuration(limit)));
    }
    OXBOW_RETURN_IF_ERROR(wait(status, pause));
  }
}

}  // namespace oxbow
