// A replay entry's stored steps as pictures: one strip, x_i from left to right.
//
// A latent that is a picture (1 or 3 channels) is shown as it is, others in false colours: the
// first three channels over their largest absolute value. With a decoder all are decoded.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/statusor.h"
#include "cli/replay/replay_entry_text.h"
#include "core/model/image_decoder.h"
#include "io/picture.h"
#include "services/buffer/replay_client.h"

namespace oxbow::cli {

// float32 [n, C, H, W]. kFailedPrecondition for an entry without latents or with videos;
// kInvalidArgument if the bytes do not fit their header.
absl::StatusOr<at::Tensor> LatentsOf(const buffer::EntryWithLatents& entry);

// `latents` as LatentsOf gave them of an entry with this header: of a group, member by member.
std::vector<LatentFacts> FactsOf(const at::Tensor& latents, const v1::ReplayEntry& header);

// `decoder` may be null. Of a group, one row per trajectory.
absl::StatusOr<io::Picture8> StripOf(const buffer::EntryWithLatents& entry,
                                     const model::ImageDecoder* decoder);

}  // namespace oxbow::cli
