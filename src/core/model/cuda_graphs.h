// A piece of GPU work that is recorded once and then launched as a whole: CUDA graphs.
//
// A forward pass is thousands of kernels. Where each takes microseconds, launching them one by one
// takes longer than running them; a graph launches all at once. It repeats what was recorded with
// the very addresses it was recorded with: what it reads may change there, but must not move.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"

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
};

// Whether this build can record CUDA graphs at all.
bool HasCudaGraphs();

// Whether it can on this device. kInvalidArgument for a CPU, kUnimplemented without CUDA; both say
// what to do.
absl::Status CheckGraphs(at::Device device);

// Requires CheckGraphs(device).ok().
std::unique_ptr<GraphRecorder> MakeCudaGraphRecorder(at::Device device);

}  // namespace oxbow::model
