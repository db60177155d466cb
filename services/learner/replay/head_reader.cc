// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/head_reader.h"

#include <algorithm>
#include <utility>

namespace oxbow::learner {

HeadReader::HeadReader(Read read) : read_(std::move(read)), thread_([this] { Run(); }) {}

HeadReader::~HeadReader() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

void HeadReader::Begin(LearnerStep step, std::vector<EntryId> entries) {
  auto job = std::make_shared<Job>();
  job->step = step;
  job->entries = std::move(entries);
  job->trace = CurrentTrace();
  absl::MutexLock lock(&mutex_);
  jobs_.push_back(std::move(job));
}

void HeadReader::Run() {
  while (true) {
    std::shared_ptr<Job> job;
    {
      absl::MutexLock lock(&mutex_);
      const auto next = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        const auto found = std::find_if(jobs_.begin(), jobs_.end(),
                                        [](const auto& waiting) { return !waiting->begun; });
        if (found != jobs_.end()) job = *found;
        return ending_ || job != nullptr;
      };
      mutex_.Await(absl::Condition(&next));
      if (ending_) return;
      job->begun = true;
    }
    const TraceScope scope(job->trace);
    Entries entries = read_(job->entries);
    absl::MutexLock lock(&mutex_);
    job->result = std::move(entries);
  }
}

std::optional<HeadReader::Entries> HeadReader::Take(LearnerStep step, absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job->step == step; });
  if (found == jobs_.end()) return std::nullopt;
  const std::shared_ptr<Job> job = *found;
  const auto over = [&] { return job->result.has_value(); };
  mutex_.AwaitWithTimeout(absl::Condition(&over), patience);
  std::erase(jobs_, job);
  return std::move(job->result);
}

}  // namespace oxbow::learner
