// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint/checkpoint_writer.h"

#include <utility>

namespace oxbow::learner {

CheckpointWriter::CheckpointWriter() {
  thread_ = std::thread([this] { Run(); });
}

CheckpointWriter::~CheckpointWriter() {
  (void)Finish();  // Nobody is left to hear its error.
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

std::optional<absl::Status> CheckpointWriter::Ended() const {
  absl::MutexLock lock(&mutex_);
  if (write_.has_value()) return std::nullopt;
  return status_;
}

void CheckpointWriter::Begin(Write write) {
  (void)Finish();
  absl::MutexLock lock(&mutex_);
  write_ = std::move(write);
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
    absl::MutexLock lock(&mutex_);
    status_ = status;
    write_.reset();
  }
}

}  // namespace oxbow::learner
