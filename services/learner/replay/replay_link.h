// The learner's end of the replay buffer. A buffer that fails never stops training: the run goes on
// on-policy; commits wait here in a bounded queue and are handed in, in order, once the buffer
// answers again.
//
// The learner's loop owns it; a thread of its own asks a lost buffer whether it is back.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "services/buffer/replay_client.h"
#include "services/learner/coordinator/step_plan.h"
#include "services/learner/learner_metrics.h"

namespace oxbow::learner {

class ReplayLink {
 public:
  struct Options {
    std::vector<std::string> endpoints;  // One per shard; a prompt lives on shard id % shards.
    absl::Duration timeout = absl::Seconds(10);
    absl::Duration probe_every = absl::Milliseconds(500);  // While the buffer is away.
    uint64_t call_bytes_max = buffer::kOfferCallBytes;     // Offers beyond it go in another call.
    size_t commits_max = 64;  // Waiting for a buffer that is away; older ones lose their offers.
    Epoch epoch;
    uint64_t seed = 0;
    uint32_t kept_steps = 0;    // i_off
    bool images = false;        // Entries are final latents, not heads.
    uint64_t schedule_id = 0;   // Entries of another schedule are not used.
    uint64_t latent_bytes = 0;  // A latent's size as stored.
    bool same_window = false;   // Use only heads whose stochastic steps are those of the step.
  };

  // What a committed step means to the buffer.
  struct StepCommit {
    LearnerStep step;
    std::vector<v1::ReplayEntry> offers;  // To any table; in as many calls as they need.
    std::vector<v1::ReplayEntry> groups;  // Large ones: each a call of its own.
    std::vector<EntryId> used;
    std::vector<EntryId> evict;
  };

  ReplayLink(Options options, LearnerMetrics& metrics);
  ~ReplayLink();

  // Brings the buffer to a checkpoint's content; "" empties it, and so does a name it does not
  // have. If it is away, that is done first when it is back. Drops the commits that wait: they
  // belong to another past.
  void Restore(const std::string& checkpoint);

  // Draws up to `count` entries for a step with window `sde` (T flags; empty: windows do not move)
  // and reads their heads; fewer when fewer are eligible, readable, or the buffer is away.
  //
  // A head keeps its own stochastic steps, whatever the window is: only they have a density, and
  // weight and loss run over those before i_off. An older policy made its deterministic steps,
  // which no weight can express. Refuses and counts an entry without a stochastic step before
  // i_off, and with `same_window` an entry of another window.
  std::vector<ReplayedHead> Draw(LearnerStep step, uint32_t count,
                                 const std::vector<bool>& sde = {});

  // The oldest `count` prompts of `hard_prompts`; fewer where fewer wait or the buffer is away.
  std::vector<WaitingPrompt> DrawHardPrompts(LearnerStep step, uint32_t count);

  // The entries of `recent_groups`, without latents; nothing while the buffer is away. In the order
  // of their ids, so that a draw from them does not depend on the number of shards.
  std::vector<v1::ReplayEntry> RecentGroups();

  // A group of RecentGroups with its latents. Nothing, and a warning, if it cannot be read.
  std::optional<v1::Group> ReadGroup(const v1::ReplayEntry& entry);

  // Entries that were drawn and not used since the start.
  uint64_t heads_refused() const { return heads_refused_; }

  // Offers, then advances the buffer's age. Counts outcomes in `metrics`, and the commits whose
  // offers were lost: the buffer was away too long, or refused them for good.
  void Commit(StepCommit commit);

  // Keeps the content under a name. An error leaves training as it is.
  absl::Status Checkpoint(const std::string& name, uint32_t keep);

  // All shards as one buffer: sums, means over entries, extremes. Nothing while the buffer is away.
  std::optional<v1::InfoResponse> Info();

  bool attached() const;

  // Waits until a lost buffer answers; false after `timeout`.
  bool AwaitAttachedForTest(absl::Duration timeout) const;

 private:
  struct Pending {
    std::optional<std::string> restore;
    StepCommit commit;
  };

  bool Deliver();  // Hands in what waits; false if the buffer is away.
  absl::Status Hand(const Pending& pending);
  absl::Status HandCommit(const StepCommit& commit);
  absl::Status HandOffers(const StepCommit& commit, size_t shard);
  absl::Status HandGroups(const StepCommit& commit, size_t shard);
  absl::Status HandRestore(const std::string& checkpoint);
  void Answered(LearnerStep step, const v1::ReplayEntry& offer,
                const v1::OfferResponse::Result& result);
  void LimitBacklog();
  void Lost(const char* call, const absl::Status& status);
  void Probe();
  std::optional<ReplayedHead> ReadHead(uint32_t shard, LearnerStep step,
                                       const v1::ReplayEntry& entry, const std::vector<bool>& sde);
  std::nullopt_t RefuseHead(const v1::ReplayEntry& entry, const char* reason);

  const Options options_;
  LearnerMetrics& metrics_;
  std::vector<std::unique_ptr<buffer::ReplayClient>> shards_;
  std::deque<Pending> pending_;
  uint64_t heads_refused_ = 0;

  mutable absl::Mutex mutex_;
  bool attached_ ABSL_GUARDED_BY(mutex_) = true;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread prober_;
};

}  // namespace oxbow::learner
