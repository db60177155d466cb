// SPDX-License-Identifier: Apache-2.0
// The learner's end of the replay buffer: all its shards as one. A shard that fails never stops
// training: the run goes on with the others, and on-policy without any, or waits for it for a
// limited time (shard_link.h). Shards are called side by side.
//
// The learner's loop owns it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "core/replay/table_policy.h"
#include "services/buffer/replay_client.h"
#include "services/learner/plan/step_plan.h"
#include "services/learner/record/learner_metrics.h"
#include "services/learner/replay/head_form.h"
#include "services/learner/replay/head_reader.h"
#include "services/learner/replay/shard_link.h"

namespace oxbow::learner {

class ReplayLink {
 public:
  struct Options {
    std::vector<std::string> endpoints;  // One per shard; a prompt lives on shard id % shards.
    ShardLink::Options each;  // The link fills in which shard it is; bytes that wait are of all.
    uint64_t seed = 0;
    HeadForm form;  // The entries that it uses.
  };

  using StepCommit = learner::StepCommit;

  ReplayLink(Options options, LearnerMetrics& metrics);
  ~ReplayLink();

  // Brings the buffer to a checkpoint's content. A shard without a checkpoint of this name, and
  // every shard for an empty name, keeps what it has of the first `committed` steps (0: nothing). A
  // shard that is away does that first when it is back.
  void Restore(const std::string& checkpoint, LearnerStep committed = LearnerStep(0));

  // Why the run must end: a shard belongs to another run, or to a later start of this one.
  // kInvalidArgument, with what to do. OK: it need not.
  absl::Status ended() const;

  // Draws up to `count` entries for a step with window `sde` (T flags; empty: windows do not move);
  // fewer when fewer are eligible or the buffer is away. Refuses and counts those that the run
  // cannot use (HeadForm). Their latents are read meanwhile: TakeLatents has them.
  std::vector<ReplayedHead> Draw(LearnerStep step, uint32_t count,
                                 const std::vector<bool>& sde = {});

  // Gives the drawn heads of a step's groups their latents, and waits for those that are not here
  // yet. Returns the indices of groups whose head cannot be read: they are fresh ones now. Called
  // once for each step that has drawn.
  std::vector<size_t> TakeLatents(LearnerStep step, std::vector<PlannedGroup>& planned);

  // The oldest `count` prompts of `hard_prompts`; fewer where fewer wait or the buffer is away.
  std::vector<v1::ReplayEntry> DrawHardPrompts(LearnerStep step, uint32_t count);

  // The entries of `recent_groups`, without latents; nothing while the buffer is away. In the order
  // of their ids, so that a draw from them does not depend on the number of shards.
  std::vector<v1::ReplayEntry> RecentGroups();

  // A group of RecentGroups with its latents. Nothing, and a warning, if it cannot be read.
  std::optional<v1::Group> ReadGroup(const v1::ReplayEntry& entry);

  // The entries of `best` of these prompts, without latents; nothing while the buffer is away.
  std::vector<v1::ReplayEntry> StoredOf(const std::vector<PromptId>& prompts);

  // Entries of `best` without latents, among them all that replay::NewestEntries would name of the
  // whole table: of each shard the newest `count`. Nothing while the buffer is away.
  std::vector<v1::ReplayEntry> NewestStored(LearnerStep step, const replay::DrawLimits& limits,
                                            size_t count, const std::vector<EntryId>& taken);

  // Heads of such entries, in this order; without those that cannot be read or used. They need not
  // have been drawn. `sde`: as in Draw.
  std::vector<ReplayedHead> ReadHeads(LearnerStep step, const std::vector<v1::ReplayEntry>& entries,
                                      const std::vector<bool>& sde);

  // Entries that were drawn and not used since the start.
  uint64_t heads_refused() const { return heads_refused_; }

  // Offers, then advances the buffer's age, and begins the budget of another step. Counts outcomes
  // in `metrics`, and the commits whose offers were lost: the buffer was away too long, or refused
  // them for good.
  void Commit(StepCommit commit);

  // Keeps the content of every shard under a name, or fails; training goes on either way.
  absl::Status Checkpoint(const std::string& name, uint32_t keep);

  // All shards that answer as one buffer: sums, means over entries, extremes. Nothing if none does.
  std::optional<v1::InfoResponse> Info();

  bool attached() const;  // All shards are.

  // Waits until all lost shards answer; false after `timeout`.
  bool AwaitAttachedForTest(absl::Duration timeout) const;

 private:
  // Hands in what waits; the shards that are there afterwards.
  std::vector<uint32_t> Deliver();
  std::vector<v1::ReplayEntry> DrawFrom(uint32_t shard, LearnerStep step, uint32_t count,
                                        const std::string& table);
  // The entries of this run's schedule that `list` gets from these shards, in the order of ids.
  using List = std::function<absl::StatusOr<std::vector<v1::ReplayEntry>>(uint32_t shard,
                                                                          buffer::ReplayClient&)>;
  std::vector<v1::ReplayEntry> Listed(const std::vector<uint32_t>& shards, const List& list);
  size_t ShardOfPrompt(uint64_t prompt) const { return prompt % shards_.size(); }
  ShardLink& ShardOf(const v1::ReplayEntry& entry) {
    return *shards_[ShardOfPrompt(entry.prompt().id())];
  }
  // The entries with latents; those that cannot be read are missing.
  std::vector<v1::ReplayEntry> ReadEntries(uint32_t shard, const std::vector<EntryId>& ids);
  // As HeadForm; counts a refusal, and says why.
  std::optional<ReplayedHead> HeadOf(uint32_t shard, LearnerStep step, const v1::ReplayEntry& entry,
                                     const std::vector<bool>& sde);
  std::optional<v1::Group> RefuseGroup(const v1::ReplayEntry& entry, const absl::Status& why);

  const Options options_;
  LearnerMetrics& metrics_;
  std::vector<std::unique_ptr<ShardLink>> shards_;
  std::vector<std::unique_ptr<HeadReader>> readers_;  // One per shard.
  std::atomic<uint64_t> heads_refused_ = 0;
};

}  // namespace oxbow::learner
