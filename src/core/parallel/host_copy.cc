// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/host_copy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "base/check.h"

namespace oxbow::parallel {
namespace {

constexpr int64_t kPiece = int64_t{1} << 24;  // Elements.

}  // namespace

HostCopy::HostCopy(int64_t length, bool pinned)
    : length_(length),
      pinned_(pinned),
      pieces_(static_cast<size_t>((length + kPiece - 1) / kPiece)),
      shared_(pieces_.size(), false) {}

HostCopy::HostCopy(const at::Tensor& flat) : HostCopy(flat.numel(), flat.is_cuda()) {
  Write(0, flat.detach());
}

HostCopy HostCopy::Zeros(int64_t length, at::Device device) { return {length, device.is_cuda()}; }

HostCopy::HostCopy(const HostCopy& other)
    : length_(other.length_),
      released_(other.released_),
      pinned_(other.pinned_),
      pieces_(other.pieces_),
      shared_(pieces_.size(), true),
      written_(other.written_),
      written_is_shared_(true) {
  other.shared_ = shared_;
  other.written_is_shared_ = true;
}

std::vector<HostCopy::Part> HostCopy::PartsOf(int64_t begin, int64_t length) const {
  OXBOW_CHECK(begin >= released_ && begin + length <= length_)
      << "elements from " << begin << " to " << begin + length << ", of " << released_ << " to "
      << length_;
  std::vector<Part> parts;
  for (int64_t at = begin; at < begin + length;) {
    const int64_t inside = at % kPiece, count = std::min(begin + length - at, kPiece - inside);
    parts.push_back({static_cast<size_t>(at / kPiece), inside, count});
    at += count;
  }
  return parts;
}

at::Tensor HostCopy::Memory(const Part& part) {
  at::Tensor& piece = pieces_[part.place];
  if (!piece.defined() || shared_[part.place]) {
    const at::Tensor before = piece;
    const int64_t length = std::min(kPiece, length_ - static_cast<int64_t>(part.place) * kPiece);
    piece =
        at::empty({length}, at::TensorOptions(at::kCPU).dtype(at::kFloat).pinned_memory(pinned_));
    shared_[part.place] = false;
    if (part.length < length && before.defined()) {
      WaitUntilWritten();
      piece.copy_(before);
    } else if (part.length < length) {
      piece.zero_();
    }
  }
  return piece.narrow(0, part.inside, part.length);
}

void HostCopy::WaitUntilWritten() const {
  if (written_ != nullptr) written_->synchronize();
}

void HostCopy::ForEach(
    at::Device device,
    const std::function<void(int64_t begin, const at::Tensor& piece)>& use) const {
  const at::NoGradGuard no_grad;
  if (device.is_cpu()) WaitUntilWritten();
  int64_t begin = 0;
  for (const at::Tensor& piece : pieces_) {
    use(begin, piece.to(device, at::kFloat, /*non_blocking=*/true));
    begin += piece.numel();
  }
}

void HostCopy::PutBack(at::Tensor flat) const { Read(0, flat); }

void HostCopy::Read(int64_t begin, at::Tensor part) const {
  const at::NoGradGuard no_grad;
  if (part.is_cpu()) WaitUntilWritten();
  int64_t done = 0;
  for (const Part& of : PartsOf(begin, part.numel())) {
    at::Tensor to = part.narrow(0, done, of.length);
    const at::Tensor& piece = pieces_[of.place];
    if (piece.defined()) {
      to.copy_(piece.narrow(0, of.inside, of.length), /*non_blocking=*/true);
    } else {
      to.zero_();
    }
    done += of.length;
  }
}

void HostCopy::Write(int64_t begin, const at::Tensor& part) {
  const at::NoGradGuard no_grad;
  if (part.is_cpu()) WaitUntilWritten();
  int64_t done = 0;
  for (const Part& of : PartsOf(begin, part.numel())) {
    Memory(of).copy_(part.narrow(0, done, of.length), /*non_blocking=*/true);
    done += of.length;
  }
  if (!part.is_cuda()) return;
  const c10::impl::VirtualGuardImpl device(part.device().type());
  if (written_ == nullptr || written_is_shared_) {
    written_ = std::make_shared<c10::Event>(part.device().type());
    written_is_shared_ = false;
  }
  written_->record(device.getStream(part.device()));
}

void HostCopy::Read(int64_t begin, std::span<float> part) const {
  WaitUntilWritten();
  float* to = part.data();
  for (const Part& of : PartsOf(begin, static_cast<int64_t>(part.size()))) {
    const at::Tensor& piece = pieces_[of.place];
    to = piece.defined() ? std::copy_n(piece.const_data_ptr<float>() + of.inside, of.length, to)
                         : std::fill_n(to, of.length, 0.F);
  }
}

void HostCopy::Release(int64_t end) {
  const auto whole = std::min(static_cast<size_t>(end / kPiece), pieces_.size());
  for (size_t i = 0; i < whole; ++i) pieces_[i].reset();
  released_ = std::max(released_, static_cast<int64_t>(whole) * kPiece);
}

}  // namespace oxbow::parallel
