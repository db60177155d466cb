// ReplayEntry messages <-> entries of the store. What the rules do not need stays opaque to the
// store.
#pragma once

#include "absl/status/statusor.h"
#include "oxbow/v1/replay_buffer.pb.h"
#include "services/buffer/replay_state.h"
#include "services/buffer/replay_store.h"

namespace oxbow::buffer {

// Everything of an offered entry but its latent bytes; fills latent_count from the declared shape
// [n, ...]. Queues take entries
// without latents. kInvalidArgument with the reason if the header cannot be stored: no id, a reward
// that is no number, latents inside the header, or a dtype or shape that is none.
absl::StatusOr<NewEntry> EntryFromProto(const v1::ReplayEntry& header);

// kDataLoss if the stored bytes are no header.
absl::StatusOr<v1::ReplayEntry> EntryToProto(const EntryView& view);

v1::OfferOutcome ToProto(Outcome outcome);
v1::VerifyResponse ToProto(const VerifiedPage& page);

}  // namespace oxbow::buffer
