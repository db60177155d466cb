// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint_writer.h"

#include <utility>

#include "base/status_macros.h"

namespace oxbow::learner {

CheckpointWriter::CheckpointWriter(std::function<void(const absl::Status&)> failed)
    : failed_(std::move(failed)) {
  thread_ = std::thread([this] { Run(); });
}

CheckpointWriter::~CheckpointWriter() {
  (void)Finish();  // Its error was for an earlier call.
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

absl::Status CheckpointWriter::Finish() {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !write_.has_value(); };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&idle));
  return status_;
}

absl::Status CheckpointWriter::Begin(Write write) {
  OXBOW_RETURN_IF_ERROR(Finish());
  absl::MutexLock lock(&mutex_);
  write_ = std::move(write);
  return absl::OkStatus();
}

void CheckpointWriter::Run() {
  const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return write_.has_value() || ending_;
  };
  while (true) {
    Write write;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&due));
      if (!write_.has_value()) return;
      write = std::exchange(*write_, nullptr);
    }
    const absl::Status status = write();
    write = nullptr;  // Frees what it holds before the next one may begin.
    if (!status.ok()) failed_(status);
    absl::MutexLock lock(&mutex_);
    status_.Update(status);
    write_.reset();
  }
}

}  // namespace oxbow::learner
