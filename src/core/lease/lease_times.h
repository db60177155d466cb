// Times that follow from the length of a lease, for the table, workers and the simulator.
#pragma once

#include "absl/time/time.h"

namespace oxbow::lease {

// How often a worker renews, and says that it is there: two messages may get lost.
inline absl::Duration RenewalInterval(absl::Duration lease_time) { return lease_time / 3; }

// How long the leases of a worker live on after its stream broke: it may come back on another one.
inline absl::Duration DepartureGrace(absl::Duration lease_time) { return lease_time / 10; }

// A worker whose sampler has not advanced for this long renews what it samples no more.
inline absl::Duration StandstillMax(absl::Duration lease_time) { return 4 * lease_time; }

}  // namespace oxbow::lease
