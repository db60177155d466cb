// SPDX-License-Identifier: Apache-2.0
// Decoders of published sizes and what they decode, for dry runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/model/decoder_architecture.h"
#include "tests/rehearsal/dry_case.h"

namespace oxbow::rehearsal {

struct DryDecoding {
  std::string name;  // "sd35-decode-image": a row of device_budgets.md.
  std::shared_ptr<const model::DecoderArchitecture> architecture;
  std::vector<int64_t> latent;  // [C, H, W], or of a video [C, F, H, W].
  int64_t rows = 1;             // Latents that are decoded by one call.
};

std::vector<DryDecoding> DryDecodings();

// Requires a dry device.
DryFigures Rehearse(const DryDecoding& work);

// Memory that `oxbow validate` plans for it beside the weights, in bytes.
uint64_t PlannedBytes(const DryDecoding& work);

}  // namespace oxbow::rehearsal
