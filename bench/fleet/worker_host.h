// SPDX-License-Identifier: Apache-2.0
// A process with many simulated workers, each a thread with its own lease stream. A worker does
// what the product's does, with the product's parts, but for the network:
//
//   lease -> conditioning (held, of a peer, of the learner) -> time passes -> 16 pictures scored
//         -> group sent to its rank -> lease finished
//
// All workers of a host share one relay, one client of the rewards and one sender per rank.
#pragma once

#include "bench/fleet/load.h"

namespace oxbow::bench {

// Runs until the learner says that the run is complete; returns the exit code. Latencies of leases,
// in ms, go to DIRECTORY/latencies-FIRST.
int RunHost(const Load& load);

}  // namespace oxbow::bench
