// SPDX-License-Identifier: Apache-2.0
// How much of a group a worker sends with its header, which no credit of the sink holds back.
#pragma once

#include <cstdint>

namespace oxbow::rpc {

// Latent bytes of all samples together; more come in chunks.
inline constexpr uint64_t kHeaderLatentBytes = uint64_t{64} << 10;

}  // namespace oxbow::rpc
