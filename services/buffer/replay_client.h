// SPDX-License-Identifier: Apache-2.0
// Client of one replay buffer shard: entries in, entries out; streams and deadlines are inside.
//
// An entry that is offered or read is one message with its latents in trajectory.latents.data. On
// the wire they travel apart, in chunks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "core/replay/draw.h"
#include "oxbow/v1/replay_buffer.pb.h"
#include "services/buffer/entry.h"
#include "services/buffer/ownership.h"

namespace oxbow::buffer {

// Limits of a replay buffer unless its flags say otherwise.
inline constexpr uint64_t kEntryBytesMax = uint64_t{128} << 20;
inline constexpr uint64_t kOfferBytesMax = uint64_t{256} << 20;  // All Offer calls together.

// Bytes to put into one Offer where there is more: a quarter of what a buffer takes, because calls
// that were given up may still fill it.
inline constexpr uint64_t kOfferCallBytes = uint64_t{64} << 20;

class ReplayClient {
 public:
  // `run` is the uid of the run that calls; empty for a caller that changes nothing.
  ReplayClient(std::string endpoint, absl::Duration timeout, std::string run = "");
  ~ReplayClient();

  // A client of the same buffer whose calls end within `left` from now, all together.
  ReplayClient Within(absl::Duration left) const;

  // All calls are safe to retry and are retried on UNAVAILABLE a few times within the timeout.
  absl::StatusOr<v1::OfferResponse> Offer(Epoch epoch, std::vector<v1::ReplayEntry> entries);
  absl::StatusOr<v1::DrawResponse> Draw(Epoch epoch, LearnerStep step, uint32_t count,
                                        uint64_t seed, const std::string& table = "");
  // All entries of a table, without latents and conditioning.
  absl::StatusOr<std::vector<v1::ReplayEntry>> List(const std::string& table);
  // The entries behind `after`, at most `limit`; none if there are no more.
  absl::StatusOr<std::vector<v1::ReplayEntry>> ListPage(const std::string& table, EntryId after,
                                                        uint32_t limit);
  // The entry of `best` of each of these prompts, which differ, in their order; prompts without one
  // are left out. kUnimplemented, as below, by a buffer of an older version.
  absl::StatusOr<std::vector<v1::ReplayEntry>> ListOf(const std::vector<PromptId>& prompts);
  // The newest `count` entries of `best` that may be drawn for `step` and are `wanted`, newest
  // first.
  absl::StatusOr<std::vector<v1::ReplayEntry>> ListNewest(
      LearnerStep step, const replay::DrawLimits& limits, size_t count,
      const std::function<bool(const v1::ReplayEntry&)>& wanted);
  // The next page of checked entries; the last one has no cursor.
  absl::StatusOr<v1::VerifyResponse> Verify(const std::string& cursor, uint32_t limit);
  // An entry with all its stored latents, its conditioning and its picture.
  absl::StatusOr<v1::ReplayEntry> ReadWhole(EntryId entry);
  // An entry with latents [first, first + count), without conditioning.
  absl::StatusOr<v1::ReplayEntry> Read(EntryId entry, uint32_t first, uint32_t count);
  // An entry with its conditioning and its picture, without latents.
  absl::StatusOr<v1::ReplayEntry> ReadPicture(EntryId entry);
  // Entries with all their stored latents, in this order; those that are not there are left out.
  absl::StatusOr<std::vector<v1::ReplayEntry>> ReadMany(const std::vector<EntryId>& entries);
  absl::Status Advance(Epoch epoch, LearnerStep step, const std::vector<EntryId>& used,
                       const std::vector<EntryId>& evict,
                       const std::vector<Rescored>& rescored = {}, uint32_t failures_max = 0);
  absl::Status Checkpoint(Epoch epoch, const std::string& name, uint32_t keep);
  absl::Status Restore(Epoch epoch, const std::string& name, const RestoreFor& wanted = {});
  absl::StatusOr<v1::InfoResponse> Info();

 private:
  absl::StatusOr<v1::ReplayEntry> Read(const v1::ReadRequest& request);
  absl::StatusOr<std::vector<v1::ReplayEntry>> ReadAll(const v1::ReadRequest& request);
  absl::StatusOr<std::vector<v1::ReplayEntry>> Page(const v1::ListRequest& request);
  struct Impl;
  explicit ReplayClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::buffer
