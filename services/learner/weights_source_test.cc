// SPDX-License-Identifier: Apache-2.0
#include "services/learner/weights_source.h"

#include <ATen/ATen.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "io/tensor_torch.h"
#include "tests/testing/own_memory.h"

namespace oxbow::learner {
namespace {

using ::oxbow::testing::ForgetPeakMemory;
using ::oxbow::testing::OwnMemory;

constexpr int64_t kTensor = int64_t{4} << 20;  // Values: 16 MiB.
constexpr int kTensors = 40;
constexpr double kBytes = 4.0 * kTensor * kTensors;

// Every chunk has bytes of its own.
at::Tensor Values(int64_t count) { return at::arange(count, at::kInt).view(at::kFloat); }

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

}  // namespace
}  // namespace oxbow::learner
