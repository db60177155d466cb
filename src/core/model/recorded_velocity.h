// A velocity model whose forward pass is recorded once per shape and then replayed; see
// cuda_graphs.h. The same kernels run on the same values, so velocities have the same bits.
//
// A recording reads its inputs from tensors of its own, into which each call copies, and the
// weights where they lay when it was made. Weights that change in place are what the next replay
// reads: Policy::Load and merged adapters write in place. If one has moved, all recordings are made
// again.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/model/cuda_graphs.h"
#include "core/model/velocity_model.h"

namespace oxbow::model {

// Shapes that are kept; another one takes the place of the one used longest ago. Each costs its
// inputs and its result; all share the memory of what lies between.
inline constexpr size_t kRecordingsMax = 16;

// `weights`: all that the model reads besides its inputs, as it is bound to them; all on the device
// that it runs on. Velocities are asked for without gradients, by one thread at a time.
//
// `recorder` is shared by the networks of a policy: their recordings share memory.
std::unique_ptr<VelocityModel> MakeRecorded(std::unique_ptr<VelocityModel> model,
                                            std::vector<at::Tensor> weights,
                                            std::shared_ptr<GraphRecorder> recorder,
                                            size_t recordings_max = kRecordingsMax);

}  // namespace oxbow::model
