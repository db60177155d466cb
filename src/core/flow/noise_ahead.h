// SPDX-License-Identifier: Apache-2.0
// The noise of a path's stochastic steps, drawn by a thread of its own while the network computes.
//
// Noise is counter-based: who draws it when changes no bit. The thread touches no torch. The caller
// draws small noise itself: a thread would cost more than it saves.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace oxbow::flow {

class NoiseAhead {
 public:
  // Fills row `row` of the noise of step `step`, whichever thread calls it.
  using Draw = std::function<void(uint32_t step, size_t row, std::span<float> out)>;

  // The noise of `steps`, in this order, each of `shape` [B, ...], for `device`.
  NoiseAhead(std::vector<uint32_t> steps, std::vector<int64_t> shape, at::Device device, Draw draw);
  ~NoiseAhead();
  NoiseAhead(const NoiseAhead&) = delete;
  NoiseAhead& operator=(const NoiseAhead&) = delete;

  // The noise of the next step, float32, on the device. Waits for what is not drawn yet.
  at::Tensor Take();

 private:
  struct Step {
    Step(uint32_t n, at::Tensor t, std::span<float> v)
        : number(n), noise(std::move(t)), values(v) {}
    const uint32_t number;
    const at::Tensor noise;  // In host memory.
    const std::span<float> values;
    bool drawn = false;
  };
  std::shared_ptr<Step> NextStep();
  bool Fill(Step& step);
  void Run();

  const std::vector<uint32_t> steps_;
  const std::vector<int64_t> shape_;
  const at::Device device_;
  const Draw draw_;
  size_t made_ = 0;  // How many of steps_, by the caller's thread.

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The next steps, in order. The thread draws the first that is not drawn.
  std::deque<std::shared_ptr<Step>> ahead_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace oxbow::flow
