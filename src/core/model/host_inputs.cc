// SPDX-License-Identifier: Apache-2.0
#include "core/model/host_inputs.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace oxbow::model {
namespace {

thread_local std::shared_ptr<HostInputs> inputs_of_thread;

}  // namespace

// Copies go in a stream of their own, beside the kernels in that of the caller.
struct HostInputs::Streams {
  explicit Streams(at::Device device)
      : device(device),
        guard(device.type()),
        copies(guard.getStreamFromGlobalPool(device)),
        made(device.type()),
        left(device.type()) {}

  c10::Stream kernels() const { return guard.getStream(device); }

  const at::Device device;
  c10::impl::VirtualGuardImpl guard;
  c10::Stream copies;
  c10::Event made;  // The source of a copy, or the memory that it goes to.
  c10::Event left;  // The last copy to the host.
};

struct HostInputs::Kept::Arrival {
  explicit Arrival(at::DeviceType type) : event(type) {}
  c10::Event event;
};

HostInputs::HostInputs(at::Device device)
    : streams_(device.is_cpu() ? nullptr : std::make_unique<Streams>(device)) {}

HostInputs::~HostInputs() { LetGo(); }

// The kernels that next get the memory of what left wait for its copy.
void HostInputs::LetGo() {
  if (leaving_.empty()) return;
  streams_->left.block(streams_->kernels());
  leaving_.clear();
}

std::shared_ptr<HostInputs::Kept> HostInputs::Keep(std::vector<at::Tensor> inputs) {
  const at::NoGradGuard no_grad;
  auto kept = std::make_shared<Kept>(shared_from_this());
  kept->before_ = std::exchange(latest_, kept);
  if (streams_ == nullptr) {
    for (const at::Tensor& input : inputs) kept->on_host_.push_back(input.detach().clone());
    return kept;
  }
  LetGo();
  streams_->made.record(streams_->kernels());
  streams_->made.block(streams_->copies);
  const c10::StreamGuard in_copies(streams_->copies);
  for (const at::Tensor& input : inputs) {
    const at::TensorOptions host =
        at::TensorOptions(at::kCPU).dtype(input.scalar_type()).pinned_memory(true);
    kept->on_host_.push_back(at::empty(input.sizes(), host));
    kept->on_host_.back().copy_(input.detach(), /*non_blocking=*/true);
  }
  streams_->left.record(streams_->copies);
  leaving_ = std::move(inputs);
  return kept;
}

HostInputs::Kept::Kept(std::shared_ptr<HostInputs> owner) : owner_(std::move(owner)) {}
HostInputs::Kept::~Kept() {
  // Bytes still on their way must not come to the next owner of the memory.
  if (arrival_ != nullptr) arrival_->event.block(owner_->streams_->kernels());
}

void HostInputs::Kept::Fetch() {
  if (on_host_.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> from = std::exchange(on_host_, {});
  Streams* const streams = owner_->streams_.get();
  if (streams == nullptr) {
    on_device_ = std::move(from);
    return;
  }
  owner_->LetGo();
  for (const at::Tensor& input : from) {
    on_device_.push_back(
        at::empty(input.sizes(), at::TensorOptions(streams->device).dtype(input.scalar_type())));
  }
  streams->made.record(streams->kernels());
  streams->made.block(streams->copies);
  const c10::StreamGuard in_copies(streams->copies);
  for (size_t i = 0; i < from.size(); ++i) on_device_[i].copy_(from[i], /*non_blocking=*/true);
  arrival_ = std::make_unique<Arrival>(streams->device.type());
  arrival_->event.record(streams->copies);
}

std::vector<at::Tensor> HostInputs::Kept::Take() {
  Fetch();
  if (arrival_ != nullptr) {
    arrival_->event.block(owner_->streams_->kernels());
    arrival_.reset();
  }
  if (const auto before = before_.lock()) before->Fetch();
  return std::exchange(on_device_, {});
}

HostInputs::Scope::Scope(const std::shared_ptr<HostInputs>& inputs)
    : before_(std::exchange(inputs_of_thread, inputs)) {}
HostInputs::Scope::~Scope() { inputs_of_thread = before_; }

const std::shared_ptr<HostInputs>& HostInputs::Current() { return inputs_of_thread; }

}  // namespace oxbow::model
