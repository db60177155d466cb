// SPDX-License-Identifier: Apache-2.0
#include "cli/run/work_progress.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/first_part.h"
#include "cli/run/run_display.h"
#include "cli/terminal.h"

namespace oxbow::cli {
namespace {

constexpr absl::Duration kRewritten = absl::Milliseconds(500);
constexpr absl::Duration kLineEvery = absl::Seconds(10);  // Where none is rewritten.

}  // namespace

WorkProgress::WorkProgress(std::string command)
    : WorkProgress(
          {.command = std::move(command), .columns = [] { return TerminalColumns(STDERR_FILENO); }},
          Clock::Steady(), std::cerr, /*runs=*/true) {}

WorkProgress::WorkProgress(Options options, const Clock& clock, std::ostream& out, bool runs)
    : options_(std::move(options)), clock_(clock), out_(out) {
  work_.begun = clock_.Now();
  if (runs) thread_ = std::thread([this] { Run(); });
}

WorkProgress::~WorkProgress() {
  {
    const absl::MutexLock lock(&mutex_);
    ended_ = true;
    if (std::exchange(line_in_place_, false)) out_ << "\r\033[K" << std::flush;
  }
  if (thread_.joinable()) thread_.join();
}

void WorkProgress::Begin(std::string doing) {
  const absl::MutexLock lock(&mutex_);
  work_ = {.doing = std::move(doing), .begun = clock_.Now(), .items = {}};
}

void WorkProgress::Count(double done, uint64_t total, const std::string& items) {
  const absl::MutexLock lock(&mutex_);
  work_.done = done;
  work_.total = total;
  work_.items = items;
}

std::string WorkProgress::Line(absl::Duration now) const {
  std::string line = absl::StrCat(options_.command, "  ", work_.doing);
  const double seconds = absl::ToDoubleSeconds(now - work_.begun);
  if (work_.total > 0) {
    absl::StrAppendFormat(&line, " %d/%d %s", static_cast<uint64_t>(work_.done), work_.total,
                          work_.items);
  }
  if (work_.total == 0 || work_.done <= 0 || seconds <= 0) {
    return absl::StrCat(line, "  ", ClockText(seconds));
  }
  const double rate = work_.done / seconds;
  const double left = std::max(0.0, static_cast<double>(work_.total) - work_.done);
  return absl::StrCat(line, absl::StrFormat("  %.3g %s/s  ETA ", rate, work_.items),
                      ClockText(left / rate));
}

void WorkProgress::Show() {
  const std::string line = Line(clock_.Now());
  if (const auto columns = options_.columns()) {
    // The last column stays free: a full line would wrap on some terminals.
    out_ << "\r\033[K" << FirstPart(line, std::max<size_t>(*columns, 2) - 1) << std::flush;
    line_in_place_ = true;
  } else {
    out_ << line << std::endl;
  }
}

void WorkProgress::ShowNow() {
  const absl::MutexLock lock(&mutex_);
  Show();
}

void WorkProgress::Run() {
  const absl::MutexLock lock(&mutex_);
  while (!ended_) {
    const absl::Duration pause = options_.columns() ? kRewritten : kLineEvery;
    mutex_.AwaitWithTimeout(absl::Condition(&ended_), pause);
    if (!ended_) Show();
  }
}

}  // namespace oxbow::cli
