// SPDX-License-Identifier: Apache-2.0
// Puts the entries of one batch of an Offer together from its messages: [header][chunk]* or whole
// entries, any number of either.
//
// Keeps an entry that cannot be stored together with the reason, so that every header gets its
// outcome; a stream that breaks the protocol fails as a whole. Takes memory from a budget that all
// calls share, before it is used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_budget.h"
#include "base/ids.h"
#include "oxbow/v1/replay_buffer.pb.h"
#include "services/buffer/entry.h"
#include "services/buffer/ownership.h"

namespace oxbow::buffer {

class OfferAssembly {
 public:
  // `budget` outlives this, which holds a part of it.
  OfferAssembly(uint64_t entry_bytes_max, ByteBudget& budget);
  OfferAssembly(const OfferAssembly&) = delete;
  OfferAssembly& operator=(const OfferAssembly&) = delete;

  // kInvalidArgument for a chunk without header or out of order, a second caller, or a call that no
  // budget would be enough for; kResourceExhausted when others spent it. After an error the call is
  // lost.
  absl::Status Add(v1::OfferRequest request);

  // The entries, in order. Entry::invalid says why one cannot be stored.
  std::vector<Entry> Finish();

  const Caller& caller() const { return caller_; }
  uint64_t bytes() const { return taken_.bytes(); }
  bool started() const { return started_; }  // Whether anything was added.

 private:
  absl::Status AddHeader(v1::ReplayEntry header);
  absl::Status AddWhole(v1::ReplayEntry entry);
  absl::Status AddChunk(const v1::OfferRequest::Chunk& chunk);
  void EndEntry();
  std::string MoreThanDeclared() const;
  absl::Status Take(uint64_t bytes);

  const uint64_t entry_bytes_max_;
  ByteBudget& budget_;
  ByteBudget::Hold taken_;
  bool started_ = false;
  Caller caller_{Epoch()};
  std::vector<Entry> entries_;
  uint64_t declared_ = 0;  // Latent bytes of the last entry.
  uint64_t received_ = 0;  // Also of an entry that is invalid and whose bytes are dropped.
};

}  // namespace oxbow::buffer
