// SPDX-License-Identifier: Apache-2.0
#include "services/learner/publish/weights_source.h"

#include <ATen/ATen.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "services/weights/chunk_store.h"
#include "tests/testing/own_memory.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::learner {
namespace {

using ::oxbow::testing::ForgetPeakMemory;
using ::oxbow::testing::OwnMemory;

constexpr int64_t kTensor = int64_t{4} << 20;  // Values: 16 MiB.
constexpr int kTensors = 40;
constexpr double kBytes = 4.0 * kTensor * kTensors;

// Every chunk has bytes of its own.
at::Tensor Values(int64_t count) { return at::arange(count, at::kInt).view(at::kFloat); }

// Promise: A publication takes one copy of the weights. A publication takes at most a fifth more
// host memory than the chunks that it serves: the copy from the device is given back as it is cut,
// one tensor at a time, and the next copy waits for the one before. The frozen part takes no memory
// where the network has it on the CPU, or the model's files have the same bytes on a disk; else at
// most a tenth more than its chunks. Versions that are still served (`services.snapshots_kept`)
// keep theirs, but for chunks that did not change. Several threads hash, and the hashes do not
// depend on how many.
TEST(WeightsSourceTest, APublicationTakesAFifthMoreThanItsChunks) {
  const at::Tensor flat = Values(kTensor * kTensors);
  TensorShapes shapes;
  for (int i = 0; i < kTensors; ++i) shapes[absl::StrCat("w", 10 + i)] = {kTensor};
  weights::SnapshotMaker maker(FrozenSource({}, {}), weights::kSnapshotChunkBytes, /*threads=*/2);
  const int64_t before = ForgetPeakMemory();
  parallel::HostCopy copy(flat);
  const weights::Snapshot snapshot = maker.Make({}, TrainedSource(copy, shapes));
  const auto taken = static_cast<double>(OwnMemory("VmHWM") - before);
  EXPECT_EQ(snapshot.chunks.size(), static_cast<size_t>(kBytes / weights::kSnapshotChunkBytes));
  EXPECT_LE(taken, 1.2 * kBytes);
  EXPECT_GE(taken, 0.9 * kBytes) << "the chunks themselves are measured";
  const auto bytes = weights::AssembleTensors(snapshot.manifest, snapshot.chunks);
  EXPECT_TRUE(at::equal(*io::ToTorch(bytes.at("w17")), flat.narrow(0, 7 * kTensor, kTensor)));
}

// Promise: A publication takes one copy of the weights.
TEST(WeightsSourceTest, TheFrozenPartTakesATenthMoreThanItsChunks) {
  model::NamedTensors base;
  const at::Tensor flat = Values(kTensor * kTensors);
  for (int i = 0; i < kTensors; ++i) {
    base[absl::StrCat("w", 10 + i)] = flat.narrow(0, i * kTensor, kTensor);
  }
  const int64_t before = ForgetPeakMemory();
  const weights::SnapshotMaker maker(FrozenSource(base, {{"d", at::ones({3})}}));
  const auto taken = static_cast<double>(OwnMemory("VmHWM") - before);
  EXPECT_LE(taken, 1.1 * kBytes);
  EXPECT_GE(taken, 0.9 * kBytes);
}

// The case of every learner whose frozen weights are on the CPU, offloaded ones among them.
// Promise: A publication takes one copy of the weights.
TEST(WeightsSourceTest, AFrozenPartInHostMemoryIsNotHeldAgain) {
  model::NamedTensors base;
  const at::Tensor flat = Values(kTensor * kTensors);
  for (int i = 0; i < kTensors; ++i) {
    base[absl::StrCat("w", 10 + i)] = flat.narrow(0, i * kTensor, kTensor);
  }
  const model::NamedTensors decoder = {{"d", at::ones({3})}};
  const int64_t before = ForgetPeakMemory();
  weights::SnapshotMaker maker(FrozenSource(base, decoder), weights::kSnapshotChunkBytes,
                               /*threads=*/2, PlacesOfFrozen(base, decoder, {}));
  const auto taken = static_cast<double>(OwnMemory("VmHWM") - before);
  EXPECT_LE(taken, 0.15 * kBytes);
  const weights::Snapshot snapshot = maker.Make({}, weights::SourceOf({}));
  EXPECT_TRUE(snapshot.chunks.empty());
  EXPECT_EQ(snapshot.placed->size(),
            static_cast<size_t>(kBytes / weights::kSnapshotChunkBytes) + 1);
  weights::ChunkStore store(/*snapshots_max=*/1, /*bytes_max=*/0);
  ASSERT_TRUE(store.Add(snapshot).ok());
  weights::ChunksByHash chunks;
  for (const v1::TensorManifest& entry : snapshot.manifest.tensors()) {
    if (entry.name() != "w17" && entry.name() != "vae.d") continue;
    for (const std::string& hash : entry.chunk_sha256()) chunks[hash] = store.Read(hash).value();
    EXPECT_TRUE(at::equal(*io::ToTorch(weights::AssembleTensor(entry, chunks)),
                          entry.name() == "w17" ? base.at("w17") : decoder.at("d")));
  }
}

// A tensor that is not side by side in host memory stands for one on a GPU.
at::Tensor Apart(const at::Tensor& tensor) { return tensor.t().contiguous().t(); }

// Promise: A publication takes one copy of the weights.
TEST(WeightsSourceTest, WhatIsNotInHostMemoryIsReadFromTheModelsFileIfThatHasTheSameBytes) {
  const testing::ScopedDirectory scratch;
  const model::NamedTensors stored = {{"same", at::randn({4, 5}).to(at::kBFloat16)},
                                      {"rounded", at::randn({4, 5})},
                                      {"changed", at::ones({4, 5})}};
  ASSERT_TRUE(io::WriteSafetensors(scratch.path() / "diffusion_pytorch_model.safetensors",
                                   {.tensors = io::AllFromTorch(stored)})
                  .ok());
  const model::NamedTensors base = {{"same", Apart(stored.at("same"))},
                                    {"rounded", Apart(stored.at("rounded").to(at::kBFloat16))},
                                    {"changed", Apart(at::zeros({4, 5}))},
                                    {"absent", Apart(at::zeros({4, 5}))}};
  const model::NamedTensors decoder = {{"same", Apart(at::full({4, 5}, 2.0))}};
  const io::DiffusersComponents components = {
      {"transformer", {.directory = scratch.path(), .weights_base = "diffusion_pytorch_model"}}};
  weights::SnapshotMaker maker(FrozenSource(base, decoder), weights::kSnapshotChunkBytes,
                               /*threads=*/1, PlacesOfFrozen(base, decoder, components));
  const weights::Snapshot snapshot = maker.Make({}, weights::SourceOf({}));
  ASSERT_NE(snapshot.placed, nullptr);
  ASSERT_EQ(snapshot.placed->size(), 1u);
  EXPECT_EQ(snapshot.chunks.size(), 3u) << "two tensors are of zeros, and so one chunk";
  const auto read = snapshot.placed->begin()->second.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(**read, io::FromTorch(stored.at("same")).data);
}

}  // namespace
}  // namespace oxbow::learner
