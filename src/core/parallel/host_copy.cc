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

HostCopy::HostCopy(const at::Tensor& flat) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions(at::kCPU).dtype(at::kFloat).pinned_memory(flat.is_cuda());
  for (int64_t begin = 0; begin < flat.numel(); begin += kPiece) {
    const int64_t length = std::min(kPiece, flat.numel() - begin);
    pieces_.push_back(at::empty({length}, options));
    pieces_.back().copy_(flat.detach().narrow(0, begin, length), /*non_blocking=*/true);
  }
  if (!flat.is_cuda()) return;
  written_ = std::make_shared<c10::Event>(flat.device().type());
  written_->record(c10::impl::VirtualGuardImpl(flat.device().type()).getStream(flat.device()));
}

void HostCopy::ForEach(
    at::Device device,
    const std::function<void(int64_t begin, const at::Tensor& piece)>& use) const {
  const at::NoGradGuard no_grad;
  int64_t begin = 0;
  for (const at::Tensor& piece : pieces_) {
    use(begin, piece.to(device, at::kFloat, /*non_blocking=*/true));
    begin += piece.numel();
  }
}

void HostCopy::PutBack(at::Tensor flat) const {
  ForEach(at::kCPU, [&](int64_t begin, const at::Tensor& piece) {
    flat.narrow(0, begin, piece.numel()).copy_(piece, /*non_blocking=*/true);
  });
}

void HostCopy::Read(int64_t begin, at::Tensor part) const {
  const at::NoGradGuard no_grad;
  for (int64_t done = 0; done < part.numel();) {
    const auto place = static_cast<size_t>((begin + done) / kPiece);
    const int64_t inside = (begin + done) % kPiece;
    OXBOW_CHECK(place < pieces_.size()) << "element " << begin + done << " is past the end";
    const int64_t length = std::min(part.numel() - done, pieces_[place].numel() - inside);
    OXBOW_CHECK(length > 0) << "element " << begin + done << " is past the end";
    part.narrow(0, done, length)
        .copy_(pieces_[place].narrow(0, inside, length), /*non_blocking=*/true);
    done += length;
  }
}

void HostCopy::Read(int64_t begin, std::span<float> part) const {
  if (written_ != nullptr) written_->synchronize();
  for (size_t done = 0; done < part.size();) {
    const int64_t from = begin + static_cast<int64_t>(done);
    const at::Tensor& piece = pieces_.at(static_cast<size_t>(from / kPiece));
    const int64_t inside = from % kPiece;
    const size_t length = std::min(part.size() - done, static_cast<size_t>(piece.numel() - inside));
    std::copy_n(piece.const_data_ptr<float>() + inside, length, part.data() + done);
    done += length;
  }
}

void HostCopy::Release(int64_t end) {
  const auto whole = std::min(static_cast<size_t>(end / kPiece), pieces_.size());
  for (size_t i = 0; i < whole; ++i) pieces_[i].reset();
}

}  // namespace oxbow::parallel
