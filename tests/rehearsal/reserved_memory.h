// SPDX-License-Identifier: Apache-2.0
// Host memory for dry runs: large tensors get addresses alone. No operation of a dry run writes to
// them, so they take no memory, and may be larger than this machine's.
#pragma once

namespace oxbow::rehearsal {

// From now on, in this process.
void ReserveLargeTensors();

}  // namespace oxbow::rehearsal
