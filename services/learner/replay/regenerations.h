// SPDX-License-Identifier: Apache-2.0
// The findings of a step about the entries whose pictures it generated again. Pure.
//
// A stored head was once the path of a success. Its tail is of the present policy, so its new
// picture may be worse. A regeneration *failed* if its reward is below that of the entry's first
// picture and no better than the mean of the fresh samples beside it: the head then brings its
// group nothing that the policy does not have.
#pragma once

#include <optional>

#include "oxbow/v1/common.pb.h"
#include "services/buffer/replay_client.h"

namespace oxbow::learner {

// Mean reward of a group's fresh samples; nothing if none was scored.
std::optional<double> FreshMean(const v1::Group& group);

// Where several branches go on from one head, their mean counts. Nothing for a group without a
// replayed sample that has a score. The entry takes its new reward.
std::optional<buffer::Rescored> RegenerationOf(const v1::Group& group);

}  // namespace oxbow::learner
