// SPDX-License-Identifier: Apache-2.0
// ReplayEntry messages <-> entries of the store. What the rules do not need is opaque to the store.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "oxbow/v1/replay_buffer.pb.h"
#include "services/buffer/entry.h"
#include "services/buffer/replay_store.h"

namespace oxbow::buffer {

// The caller of a call that changes the store.
template <typename Request>
Caller CallerOf(const Request& request) {
  return {Epoch(request.epoch()), request.run_uid()};
}

// The table that a message names; a message that names none means best.
std::string TableOf(const std::string& name);

// An offered entry without its latent bytes; latent_count is n of the declared shape [n, ...].
// Queues take entries without latents. kInvalidArgument with the reason if the header cannot be
// stored: no id, a reward that is no number, latents inside the header, a picture that is too
// large, or a dtype or shape that is none.
absl::StatusOr<Entry> EntryFromProto(v1::ReplayEntry header);

// An entry that was read, without its latent bytes. kDataLoss if the stored bytes are no header.
absl::StatusOr<v1::ReplayEntry> EntryToProto(const Entry& entry);

v1::OfferOutcome ToProto(Outcome outcome);
v1::VerifyResponse ToProto(const VerifiedPage& page);

}  // namespace oxbow::buffer
