// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/run_disk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/patience.h"
#include "base/status_macros.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kPauseSlice = absl::Milliseconds(500);
constexpr absl::Duration kAfterDrainGrace = absl::Seconds(50);
constexpr absl::Duration kPauseAfterDrain = absl::Seconds(10);

}  // namespace

void RunDisk::NoteUnwritten(const std::string& what, const absl::Status& why,
                            absl::Duration pause) {
  OXBOW_LOG(Warning) << "the run's disk cannot be written, it is tried again" << Field("what", what)
                     << Field("step", committed_) << Field("pause", pause)
                     << Field("error", std::string(why.message()));
  parts_.metrics.WriteFailed(what);
  parts_.coordinator.events().NoteFailure("disk",
                                          absl::StrCat(what, ": ", std::string(why.message())));
}

absl::Status RunDisk::Pause(absl::Duration pause) {
  const bool drained = drain_.asked();
  const absl::Duration end =
      Clock::Steady().Now() + (drained ? std::min(pause, kPauseAfterDrain) : pause);
  while (Clock::Steady().Now() < end && drain_.asked() == drained) {
    OXBOW_RETURN_IF_ERROR(parts_.assembler.stopped());
    absl::SleepFor(std::min(kPauseSlice, end - Clock::Steady().Now()));
  }
  return absl::OkStatus();
}

absl::Status RunDisk::StopUnwritten(const absl::Status& why) const {
  if (!drain_.Overdue(std::min(patience_, kAfterDrainGrace))) return absl::OkStatus();
  return Annotate(why, absl::StrCat("asked to stop, and step ", committed_, " cannot be written"));
}

absl::Status RunDisk::Persist(const std::string& what, const std::function<absl::Status()>& write) {
  return Insist(Clock::Steady(), patience_, write,
                [&](const absl::Status& why, absl::Duration pause) {
                  NoteUnwritten(what, why, pause);
                  OXBOW_RETURN_IF_ERROR(StopUnwritten(why));
                  return Pause(pause);
                });
}

absl::Status RunDisk::PersistUnlessDrained(const std::string& what,
                                           const std::function<absl::Status()>& write) {
  bool tried = false;
  return Persist(what, [&] {
    const bool again = std::exchange(tried, true);
    return again && drain_.asked() ? absl::CancelledError("drained") : write();
  });
}

}  // namespace oxbow::learner
