// SPDX-License-Identifier: Apache-2.0
// The settings of a replay store in a run's config. One home for the buffer and for those who look
// into its directory.
#pragma once

#include <vector>

#include "core/replay/priority.h"
#include "core/replay/table_policy.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::buffer {

replay::Decay DecayOf(const v1::ReplayConfig& replay);

// Best first, then the queues of an adapted run; capacities are of one of services.replay_shards.
std::vector<replay::TablePolicy> TablesOf(const v1::RunConfig& config);

}  // namespace oxbow::buffer
