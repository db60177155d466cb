// Client of one replay buffer shard: typed bytes in, typed bytes out, streaming and deadlines
// inside.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "io/tensor_bytes.h"
#include "oxbow/v1/replay_buffer.pb.h"

namespace oxbow::buffer {

// An entry with its latents: header.trajectory.latents has dtype and shape, `latents` the bytes.
struct EntryWithLatents {
  v1::ReplayEntry header;
  std::string latents;
};

// What to put into one Offer where there is more: a quarter of what a buffer takes at a time, for
// calls that were given up and still fill it.
inline constexpr uint64_t kOfferCallBytes = uint64_t{64} << 20;

class ReplayClient {
 public:
  ReplayClient(std::string endpoint, absl::Duration timeout);
  ~ReplayClient();

  // All calls are safe to retry and are retried on UNAVAILABLE a few times within the timeout.
  absl::StatusOr<v1::OfferResponse> Offer(Epoch epoch,
                                          const std::vector<EntryWithLatents>& entries);
  absl::StatusOr<v1::DrawResponse> Draw(Epoch epoch, LearnerStep step, uint32_t count,
                                        uint64_t seed, const std::string& table = "");
  // All entries of a table, without latents and conditioning.
  absl::StatusOr<std::vector<v1::ReplayEntry>> List(const std::string& table);
  // The entries behind `after`, at most `limit`; none: those were all.
  absl::StatusOr<std::vector<v1::ReplayEntry>> ListPage(const std::string& table, EntryId after,
                                                        uint32_t limit);
  // The next page of checked entries; none: an empty cursor.
  absl::StatusOr<v1::VerifyResponse> Verify(const std::string& cursor, uint32_t limit);
  // All stored latents with the entry's header.
  absl::StatusOr<EntryWithLatents> ReadWhole(EntryId entry);
  // Latents [first, first + count) with the entry's header.
  absl::StatusOr<EntryWithLatents> Read(EntryId entry, uint32_t first, uint32_t count);
  absl::Status Advance(Epoch epoch, LearnerStep step, const std::vector<EntryId>& used,
                       const std::vector<EntryId>& evict);
  absl::Status Checkpoint(Epoch epoch, const std::string& name, uint32_t keep);
  absl::Status Restore(Epoch epoch, const std::string& name);
  absl::StatusOr<v1::InfoResponse> Info();

 private:
  absl::StatusOr<EntryWithLatents> Read(const v1::ReadRequest& request);
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::buffer
