// SPDX-License-Identifier: Apache-2.0
#include "services/learner/record/live_report.h"

#include <string>
#include <utility>

#include "base/log.h"

namespace oxbow::learner {

LiveReport::LiveReport(Write write, absl::Duration every)
    : write_(std::move(write)), every_(every) {
  thread_ = std::thread([this] { Run(); });
}

LiveReport::~LiveReport() { Stop(); }

void LiveReport::Ask() {
  absl::MutexLock lock(&mutex_);
  asked_ = true;
}

void LiveReport::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void LiveReport::Run() {
  const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return asked_ || stopping_; };
  for (absl::Duration wait = absl::InfiniteDuration();; wait = every_) {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&due), wait);
      if (stopping_) return;
      asked_ = false;
    }
    WriteOnce(/*live=*/true);
  }
}

void LiveReport::WriteLast() {
  Stop();
  WriteOnce(/*live=*/false);
}

void LiveReport::WriteOnce(bool live) {
  if (const absl::Status status = write_(live); !status.ok()) {
    OXBOW_LOG(Warning) << "report was not written" << Field("error", std::string(status.message()));
  }
}

}  // namespace oxbow::learner
