// SPDX-License-Identifier: Apache-2.0
// The record that a path leaves in host memory: its latents and the log-probs of its steps.
//
// Log-probs are computed on the CPU, because a GPU's sums have other bits. On a GPU a step's
// latents and velocity go to pinned memory when the GPU gets there. They are scored one step later,
// while the network computes: the sampling thread never waits for the step that it has just
// launched.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>

#include "core/flow/dynamics.h"

namespace c10 {
struct Event;
}  // namespace c10

namespace oxbow::flow {

class PathRecord {
 public:
  // Begins a path of steps `first_step` to the spec's last, from x_{first_step} = `x` [B, C, H, W],
  // float32. `spec` must outlive it.
  PathRecord(const SamplingSpec& spec, int first_step, const at::Tensor& x);
  ~PathRecord();
  PathRecord(const PathRecord&) = delete;
  PathRecord& operator=(const PathRecord&) = delete;

  // Takes the next step: x_{i+1}, like x_i, and the velocity that led there.
  void Add(const at::Tensor& x_next, const at::Tensor& v);

  // Both are whole when all steps were taken and Finish() has returned.
  void Finish();
  const at::Tensor& latents() const { return latents_; }    // [steps + 1, B, C, H, W] float32
  const at::Tensor& log_prob() const { return log_prob_; }  // [steps, B] float32; 0: no density

 private:
  // A step on its way from the GPU. Two are enough: one moves while the other is scored.
  struct Place {
    at::Tensor x_next, v;  // Pinned.
    std::unique_ptr<c10::Event> arrived;
  };
  void Send(Place& place, const at::Tensor& x_next, const at::Tensor& v) const;
  void Settle(int64_t n);
  void Score(int64_t n, const at::Tensor& v);
  bool HasDensity(int64_t n) const;

  const SamplingSpec& spec_;
  const int first_step_;
  at::Tensor latents_, log_prob_;
  int64_t taken_ = 0;    // Steps that were added,
  int64_t settled_ = 0;  // and of these, those that are in the two tensors.
  std::array<Place, 2> places_;
};

}  // namespace oxbow::flow
