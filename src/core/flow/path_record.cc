// SPDX-License-Identifier: Apache-2.0
#include "core/flow/path_record.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>

#include "base/check.h"
#include "core/flow/sampler.h"

namespace oxbow::flow {
namespace {

// Makes `place` a pinned tensor like `there`, and copies `there` to it, not waiting.
void CopyBehind(const at::Tensor& there, at::Tensor& place) {
  if (!place.defined()) {
    place = at::empty(there.sizes(), there.options().device(at::kCPU).pinned_memory(true));
  }
  place.copy_(there, /*non_blocking=*/true);
}

// A path is new memory of many megabytes. By pages of 4 KiB, taking it costs as much time as
// filling it.
void TakeInLargePages(const at::Tensor& tensor) {
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(tensor.mutable_data_ptr());
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t end = (begin + tensor.nbytes()) / kPage * kPage;
  if (end <= first) return;
  madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);  // A wish: may be refused.
}

}  // namespace

PathRecord::PathRecord(const SamplingSpec& spec, int first_step, const at::Tensor& x)
    : spec_(spec), first_step_(first_step) {
  const int64_t steps = spec.steps() - first_step;
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), steps + 1);
  latents_ = at::empty(shape, at::kFloat);
  TakeInLargePages(latents_);
  log_prob_ = at::zeros({steps, x.size(0)}, at::kFloat);
  latents_[0].copy_(x);
}

PathRecord::~PathRecord() = default;

bool PathRecord::HasDensity(int64_t n) const {
  return KernelAt(spec_, first_step_ + static_cast<int>(n)).scale > 0;
}

void PathRecord::Add(const at::Tensor& x_next, const at::Tensor& v) {
  OXBOW_CHECK(taken_ < log_prob_.size(0)) << "more steps than the path has: " << taken_;
  const int64_t n = taken_++;
  if (x_next.is_cpu()) {
    latents_[n + 1].copy_(x_next);
    Score(n, v);
    settled_ = taken_;
    return;
  }
  Send(places_[static_cast<size_t>(n % 2)], x_next, HasDensity(n) ? v : at::Tensor());
  if (n > 0) Settle(n - 1);
}

void PathRecord::Send(Place& place, const at::Tensor& x_next, const at::Tensor& v) const {
  CopyBehind(x_next, place.x_next);
  if (v.defined()) CopyBehind(v, place.v);
  place.arrived = std::make_unique<c10::Event>(x_next.device().type());
  place.arrived->record(
      c10::impl::VirtualGuardImpl(x_next.device().type()).getStream(x_next.device()));
}

void PathRecord::Settle(int64_t n) {
  const Place& place = places_[static_cast<size_t>(n % 2)];
  place.arrived->synchronize();
  latents_[n + 1].copy_(place.x_next);
  Score(n, place.v);
  settled_ = n + 1;
}

void PathRecord::Finish() {
  while (settled_ < taken_) Settle(settled_);
}

// Two rows at a time, which stay in the CPU's cache. Of one alone several threads would add the
// terms in another order.
void PathRecord::Score(int64_t n, const at::Tensor& v) {
  if (!HasDensity(n)) return;
  const int step = first_step_ + static_cast<int>(n);
  const int64_t rows = v.size(0);
  for (int64_t first = 0, count = 0; first < rows; first += count) {
    count = rows - first < 4 ? rows - first : 2;
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
    part(log_prob_[n])
        .copy_(ScoreTransition(spec_, step, part(latents_[n]), part(latents_[n + 1]), part(v)));
  }
}

}  // namespace oxbow::flow
