// What of a trajectory is trained on. No torch.
#pragma once

#include "oxbow/v1/config.pb.h"

namespace oxbow::rpc {

// The method trains on final pictures: of a fresh trajectory, x_T travels and nothing else.
bool TrainsFinalLatents(const v1::MethodConfig& method);

}  // namespace oxbow::rpc
