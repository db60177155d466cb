// SPDX-License-Identifier: Apache-2.0
#include "core/model/offloaded_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace oxbow::model {
namespace {

constexpr int64_t kAlignment = 256;           // Bytes: what kernels and copies like.
constexpr int64_t kKeptAtOnce = 256LL << 20;  // A power of 2, to which torch rounds pinned memory.

int64_t Aligned(int64_t length) { return (length + kAlignment - 1) / kAlignment * kAlignment; }

// A tensor like `source` whose memory is nowhere.
at::Tensor WithoutMemory(const at::Tensor& source, at::Device device) {
  at::Tensor tensor = at::empty({0}, at::TensorOptions(device).dtype(source.scalar_type()));
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(source.sizes());
  impl->set_storage_keep_dtype(c10::Storage(c10::Storage::use_byte_size_t(), source.nbytes(),
                                            c10::DataPtr(nullptr, device), /*allocator=*/nullptr,
                                            /*resizable=*/false));
  return tensor;
}

// Where a source lies, to find its neighbours.
const char* Address(const at::Tensor& source) {
  return static_cast<const char*>(source.const_data_ptr());
}

int64_t Bytes(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// `count` bytes from the first one of `source` on, with its version counter.
at::Tensor FromHost(const at::Tensor& source, int64_t count) {
  const at::Tensor bytes = source.flatten().view(at::kByte);
  return bytes.as_strided({count}, {1}, bytes.storage_offset());
}

}  // namespace

// Streams that order copies and kernels: each place is written in `copies`, and read in the stream
// of the caller.
struct OffloadedWeights::Streams {
  explicit Streams(at::Device device)
      : guard(device.type()),
        copies(guard.getStreamFromGlobalPool(device)),
        written{c10::Event(device.type()), c10::Event(device.type())},
        used{c10::Event(device.type()), c10::Event(device.type())} {}

  c10::impl::VirtualGuardImpl guard;
  c10::Stream copies;
  std::array<c10::Event, 2> written;
  std::array<c10::Event, 2> used;
};

OffloadedWeights::OffloadedWeights(at::Device device, bool pins)
    : device_(device),
      pins_(pins && device.is_cuda()),
      streams_(device.is_cpu() ? nullptr : std::make_unique<Streams>(device)) {}

OffloadedWeights::~OffloadedWeights() {
  // Bytes still on their way to a place must not come to the next owner of its memory.
  if (streams_ != nullptr) streams_->guard.synchronizeStream(streams_->copies);
}

at::TensorOptions OffloadedWeights::host_options() const {
  return at::TensorOptions(at::kCPU).dtype(at::kFloat).pinned_memory(pins_);
}

at::Tensor OffloadedWeights::Kept(const at::Tensor& tensor, at::ScalarType type) {
  const c10::InferenceMode ordinary(false);
  const at::NoGradGuard no_grad;
  const auto bytes = tensor.numel() * static_cast<int64_t>(c10::elementSize(type));
  if (!kept_.defined() || kept_.numel() - kept_end_ < bytes) {
    kept_ = at::empty({std::max(kKeptAtOnce, bytes)}, host_options().dtype(at::kByte));
    kept_end_ = 0;
  }
  at::Tensor kept = kept_.narrow(0, kept_end_, bytes).view(type).view(tensor.sizes());
  kept.copy_(tensor);
  kept_end_ = std::min(kept_end_ + Aligned(bytes), kept_.numel());
  return kept;
}

at::Tensor OffloadedWeights::Leaf(const at::Tensor& source, bool trainable,
                                  const NarrowCopy* narrow) {
  OXBOW_CHECK(source.is_cpu() && source.is_contiguous()) << source.toString();
  OXBOW_CHECK(!rest_.has_value()) << "a network was bound after the first pass";
  at::Tensor leaf = WithoutMemory(source, device_);
  leaf.requires_grad_(trainable);
  pending_.push_back({.leaf = leaf, .source = source, .narrow = narrow});
  return leaf;
}

std::vector<OffloadedWeights::PlacedLeaf> OffloadedWeights::TakePending(
    std::span<const at::Tensor> tensors) {
  std::vector<PlacedLeaf> taken;
  for (const at::Tensor& tensor : tensors) {
    const auto found = std::find_if(pending_.begin(), pending_.end(),
                                    [&](const auto& of) { return of.leaf.is_same(tensor); });
    if (found == pending_.end()) continue;
    taken.push_back(std::move(*found));
    pending_.erase(found);
  }
  return taken;
}

// Whether `source` begins in the run, or behind it with no more between than aligns it.
bool OffloadedWeights::Continues(const Run& run, const at::Tensor& source) {
  if (source.storage().unsafeGetStorageImpl() != run.source.storage().unsafeGetStorageImpl()) {
    return false;
  }
  const int64_t place = Address(source) - Address(run.source);
  return place >= 0 && place < run.source.numel() + kAlignment;
}

OffloadedWeights::Block OffloadedWeights::Arranged(std::vector<PlacedLeaf> leaves) {
  std::sort(leaves.begin(), leaves.end(), [](const PlacedLeaf& a, const PlacedLeaf& b) {
    return Address(a.source) < Address(b.source);
  });
  Block block;
  for (PlacedLeaf& leaf : leaves) {
    const int64_t length = Bytes(leaf.source);
    if (block.runs.empty() || !Continues(block.runs.back(), leaf.source)) {
      block.runs.push_back({.source = FromHost(leaf.source, length),
                            .begin = Aligned(block.length),
                            .element = leaf.source.storage_offset()});
    }
    Run& run = block.runs.back();
    if (leaf.narrow != nullptr) run.narrow = leaf.narrow;
    const int64_t place = Address(leaf.source) - Address(run.source);
    leaf.begin = run.begin + place;
    if (place + length > run.source.numel()) run.source = FromHost(run.source, place + length);
    block.length = std::max(block.length, leaf.begin + length);
  }
  block.leaves = std::move(leaves);
  return block;
}

size_t OffloadedWeights::AddBlock(const std::vector<at::Tensor>& tensors) {
  for (const Block& block : blocks_) {
    for (const PlacedLeaf& of : block.leaves) {
      OXBOW_CHECK(std::none_of(tensors.begin(), tensors.end(),
                               [&](const at::Tensor& tensor) { return of.leaf.is_same(tensor); }))
          << "a leaf of shape " << of.leaf.sizes() << " is in two blocks";
    }
  }
  blocks_.push_back(Arranged(TakePending(tensors)));
  return blocks_.size() - 1;
}

void OffloadedWeights::EndNetwork() {
  for (size_t block = first_of_network_; block < blocks_.size(); ++block) {
    blocks_[block].first = first_of_network_;
    blocks_[block].last = blocks_.size() - 1;
  }
  first_of_network_ = blocks_.size();
}

uint32_t OffloadedWeights::VersionOf(const Block& block) {
  uint32_t version = 0;
  for (const Run& run : block.runs) version += static_cast<uint32_t>(run.source._version());
  return version;
}

void OffloadedWeights::Point(const Block& block, const at::Tensor& memory) {
  for (const PlacedLeaf& of : block.leaves) {
    void* const data = memory.defined() ? memory.mutable_data_ptr<uint8_t>() + of.begin : nullptr;
    of.leaf.storage().set_data_ptr_noswap(c10::DataPtr(data, of.leaf.device()));
  }
}

void OffloadedWeights::Load(size_t to, size_t number) {
  const c10::InferenceMode ordinary(false);  // A tensor made in it could not be written to later.
  const at::NoGradGuard no_grad;
  const Block& block = blocks_[number];
  Place& place = places_[to];
  if (!place.memory.defined() || place.memory.numel() < block.length) {
    int64_t longest = 0;
    for (const Block& other : blocks_) longest = std::max(longest, other.length);
    place.memory = at::empty({longest}, at::TensorOptions(device_).dtype(at::kByte));
    if (streams_ != nullptr) streams_->used[to].record(streams_->guard.getStream(device_));
  }
  place.block = number;
  place.version = VersionOf(block);
  if (streams_ == nullptr) return Copy(block, place.memory);
  streams_->used[to].block(streams_->copies);
  const c10::StreamGuard in_copies(streams_->copies);
  Copy(block, place.memory);
  streams_->written[to].record(streams_->copies);
}

bool OffloadedWeights::ComesNarrow(const Run& run) const {
  return run.narrow != nullptr &&
         run.narrow->version == static_cast<uint32_t>(run.source._version());
}

void OffloadedWeights::Send(const at::Tensor& source, const at::Tensor& to) {
  to.copy_(source, /*non_blocking=*/true);
  brought_bytes_ += source.nbytes();
}

// In the current stream. Leaves that have no part in a narrow copy come behind it.
void OffloadedWeights::Copy(const Block& block, const at::Tensor& memory) {
  for (const Run& run : block.runs) {
    const at::Tensor to = memory.narrow(0, run.begin, run.source.numel());
    if (!ComesNarrow(run)) {
      Send(run.source, to);
      continue;
    }
    const int64_t count = run.source.numel() / static_cast<int64_t>(sizeof(float));
    if (!narrow_.defined() || narrow_.numel() < count) {
      narrow_ = at::empty({memory.numel() / static_cast<int64_t>(sizeof(float))},
                          memory.options().dtype(at::kBFloat16));
    }
    const at::Tensor came = narrow_.narrow(0, 0, count);
    Send(run.narrow->values.narrow(0, run.element, count), came);
    to.view(at::kFloat).copy_(came);
    for (const PlacedLeaf& of : block.leaves) {
      const bool within = of.begin >= run.begin && of.begin < run.begin + run.source.numel();
      if (!within || of.narrow != nullptr) continue;
      const int64_t length = Bytes(of.source);
      Send(FromHost(of.source, length), memory.narrow(0, of.begin, length));
    }
  }
}

// The place that has the block's weights, or will have them.
size_t OffloadedWeights::Bring(size_t block) {
  const uint32_t version = VersionOf(blocks_[block]);
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].block == block && places_[i].version == version) return i;
  }
  const size_t other = 1 - latest_;
  const bool stale = places_[latest_].block == block;  // An older version of itself.
  const size_t to = stale || places_[other].users > 0 ? latest_ : other;
  OXBOW_CHECK(places_[to].users == 0) << "more blocks are held at a time than there are places";
  Load(to, block);
  return to;
}

// Passes go through blocks in order, and back.
std::optional<size_t> OffloadedWeights::NextAfter(size_t block) const {
  const auto [first, last] = std::pair(blocks_[block].first, blocks_[block].last);
  if (first == last) return std::nullopt;
  if (block == first) return block + 1;
  if (block == last) return block - 1;
  const bool back = previous_ == block + 1;
  return back ? block - 1 : block + 1;
}

OffloadedWeights::Hold OffloadedWeights::Use(size_t block) {
  const size_t at = Bring(block);
  Place& place = places_[at];
  latest_ = at;
  const std::optional<size_t> next = NextAfter(block);
  previous_ = block;
  // The last that may fail, for want of memory: until then nothing is held.
  if (next.has_value() && places_[1 - at].users == 0) (void)Bring(*next);
  if (streams_ != nullptr) streams_->written[at].block(streams_->guard.getStream(device_));
  ++place.users;
  Point(blocks_[block], place.memory);
  return {this, [this, at](const void*) { Release(at); }};
}

void OffloadedWeights::Release(size_t at) {
  Place& place = places_[at];
  if (--place.users > 0) return;
  Point(blocks_[*place.block], {});
  if (streams_ != nullptr) streams_->used[at].record(streams_->guard.getStream(device_));
}

void OffloadedWeights::BringRest() {
  const c10::InferenceMode ordinary(false);
  const at::NoGradGuard no_grad;
  const bool fresh = !rest_.has_value();
  if (fresh) {
    for (PlacedLeaf& of : pending_) of.narrow = nullptr;  // These are few.
    Block rest = Arranged(pending_);
    rest_place_.memory = at::empty({rest.length}, at::TensorOptions(device_).dtype(at::kByte));
    pending_.clear();
    rest_ = std::move(rest);
    Point(*rest_, rest_place_.memory);
  }
  const uint32_t version = VersionOf(*rest_);
  if (!fresh && rest_place_.version == version) return;
  rest_place_.version = version;
  Copy(*rest_, rest_place_.memory);
}

void OffloadedWeights::WaitUntilRead() {
  if (streams_ == nullptr) return;
  streams_->guard.synchronizeStream(streams_->copies);
  streams_->guard.synchronizeStream(streams_->guard.getStream(device_));  // Weights in no block.
}

SegmentWeights WeightsOfBlock(const Tensors& tensors, OffloadedWeights* offloaded) {
  SegmentWeights weights;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.requires_grad()) weights.leaves.push_back(tensor);
  }
  if (offloaded == nullptr) return weights;
  const size_t block = offloaded->AddBlock(tensors);
  weights.hold = [offloaded, block] { return offloaded->Use(block); };
  return weights;
}

}  // namespace oxbow::model
