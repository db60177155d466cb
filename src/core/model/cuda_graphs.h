// SPDX-License-Identifier: Apache-2.0
// A piece of GPU work that is recorded once and then launched as a whole: CUDA graphs.
//
// A forward pass is thousands of kernels. Where each takes microseconds, launching them one by one
// takes longer than running them; a graph launches all at once. It repeats what was recorded with
// the very addresses it was recorded with: what it reads may change there, but must not move.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/model/velocity_model.h"

namespace oxbow::model {

class RecordedWork {
 public:
  virtual ~RecordedWork() = default;

  // Does the work again. Returns the result in the tensor it was first written to, which the next
  // replay overwrites.
  virtual const at::Tensor& Replay() = 0;
};

class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;

  // Calls `work` a few times, so that libraries choose their ways and take their memory, and once
  // more to record it; the result has its values after the first Replay. `work` must do the same
  // whatever the values are, touch one device alone and wait for nothing. Works of one recorder
  // share their memory, so one runs at a time. Throws what torch throws.
  virtual std::unique_ptr<RecordedWork> Record(const std::function<at::Tensor()>& work) = 0;

  bool optional = false;  // A network whose pass cannot be recorded goes on without.
};

// Whether this build can record CUDA graphs at all.
bool HasCudaGraphs();

// Whether it can on this device. kInvalidArgument for a CPU, kUnimplemented without CUDA; both say
// what to do.
absl::Status CheckGraphs(at::Device device);

// Requires CheckGraphs(device).ok().
std::unique_ptr<GraphRecorder> MakeCudaGraphRecorder(at::Device device);

// Shapes that are kept; another one takes the place of the one used longest ago. Each costs its
// inputs and its result; all share the memory of what lies between.
inline constexpr size_t kRecordingsMax = 16;

// A velocity model whose forward pass is recorded once per shape and then replayed. The same
// kernels run on the same values, so velocities have the same bits.
//
// A recording reads its inputs from tensors of its own, into which each call copies, and the
// weights where they lay when it was made. Weights that change in place are what the next replay
// reads: Policy::Load and merged adapters write in place. If one has moved, all recordings are made
// again.
//
// `weights`: all that the model reads besides its inputs, as it is bound to them; all on the device
// that it runs on. Velocities are asked for without gradients, by one thread at a time.
//
// `recorder` is shared by the networks of a policy: their recordings share memory.
std::unique_ptr<VelocityModel> MakeRecorded(std::unique_ptr<VelocityModel> model,
                                            std::vector<at::Tensor> weights,
                                            std::shared_ptr<GraphRecorder> recorder,
                                            size_t recordings_max = kRecordingsMax);

}  // namespace oxbow::model
