// SPDX-License-Identifier: Apache-2.0
// Reads the stored latents of drawn heads on a thread of its own. A head may be leased before they
// are here: workers read the one latent that they need themselves, and the learner needs the others
// when the step trains. So neither the plan of a step nor its workers wait for megabytes.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/trace.h"
#include "oxbow/v1/replay_buffer.pb.h"

namespace oxbow::learner {

// One thread at a time calls it.
class HeadReader {
 public:
  using Entries = absl::StatusOr<std::vector<v1::ReplayEntry>>;
  using Read = std::function<Entries(const std::vector<EntryId>&)>;

  // `read` is called from the own thread, for one step at a time, in the order of Begin.
  explicit HeadReader(Read read);
  ~HeadReader();  // Waits for a call under way.

  // Reads these entries for a step; once for each step.
  void Begin(LearnerStep step, std::vector<EntryId> entries);

  // Waits for what was read for a step and hands it over. Nothing if no read was begun for it, or
  // if it takes longer than `patience`: then it is forgotten.
  std::optional<Entries> Take(LearnerStep step, absl::Duration patience = absl::InfiniteDuration());

 private:
  struct Job {
    LearnerStep step;
    std::vector<EntryId> entries;
    std::optional<Trace> trace;
    bool begun = false;
    std::optional<Entries> result;
  };
  void Run();

  const Read read_;
  absl::Mutex mutex_;
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);  // Not taken yet.
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace oxbow::learner
