// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/local_weights.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/sha256.h"
#include "core/model/policy.h"
#include "io/tensor_torch.h"
#include "run/loaded_model.h"
#include "run/trainer_options.h"
#include "services/weights/snapshot_maker.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::rollout {
namespace {

constexpr char kModel[] = OXBOW_SOURCE_DIR "/models/digits";
constexpr char kOtherModel[] = OXBOW_SOURCE_DIR "/models/digits_sparse";

// The snapshot that a learner publishes of a LoRA on the digits' model.
weights::Snapshot Published(v1::StorageDType compute, const char* memory) {
  v1::ModelConfig config;
  config.set_path(kModel);
  config.set_trained(v1::TRAINED_PART_LORA);
  config.set_compute_dtype(compute);
  config.set_memory(memory);
  v1::SamplingConfig sampling;
  sampling.set_height(8);
  sampling.set_width(20);
  run::LoadedModel loaded = run::LoadModel(config, v1::PromptConfig(), sampling).value();
  const auto policy =
      model::Policy::Create({.architecture = loaded.architecture,
                             .read_base = std::move(loaded.read_transformer),
                             .trained = model::Trained::kLora,
                             .lora = {.rank = 2, .alpha = 2, .targets = {"attn.to_q"}},
                             .compute = run::ScalarTypeFromConfig(compute, "compute").value(),
                             .base_weights = run::BaseWeightsOf(config)})
          .value();
  return weights::MakeSnapshot({.epoch = Epoch(1), .version = PolicyVersion(0), .step = {}},
                               io::AllFromTorch(policy->frozen()),
                               io::AllFromTorch(policy->parameters().tensors()),
                               /*chunk_bytes=*/5000);
}

struct Offered {
  uint64_t bytes = 0;
  size_t lacking_before = 0;
  std::set<std::string> lacking;
};

Offered OfferOf(const weights::Snapshot& snapshot, const char* model) {
  weights::ChunkStore store(/*snapshots_max=*/1, uint64_t{1} << 30);
  auto download = weights::Download::Start(snapshot.manifest, store).value();
  Offered offered{.lacking_before = download.lacking()};
  offered.bytes = LocalWeights::Open(model).value()->Offer(snapshot.manifest, download);
  offered.lacking = download.Lacking();
  return offered;
}

TEST(LocalWeightsTest, AllThatIsFrozenComesFromTheRunsModelInEachForm) {
  for (const auto& [compute, memory] :
       {std::pair(v1::STORAGE_D_TYPE_F32, "fast"), std::pair(v1::STORAGE_D_TYPE_BF16, "fast"),
        std::pair(v1::STORAGE_D_TYPE_F32, "int8"), std::pair(v1::STORAGE_D_TYPE_BF16, "int8")}) {
    SCOPED_TRACE(::testing::Message() << "products " << compute << ", base " << memory);
    const weights::Snapshot snapshot = Published(compute, memory);
    const Offered offered = OfferOf(snapshot, kModel);
    EXPECT_GT(offered.lacking_before, 50u);
    std::set<std::string> adapter;
    for (const v1::TensorManifest& entry : snapshot.manifest.tensors()) {
      if (entry.name().find(".lora_") == std::string::npos) continue;
      adapter.insert(entry.chunk_sha256().begin(), entry.chunk_sha256().end());
    }
    EXPECT_EQ(offered.lacking, adapter) << "the adapter alone is fetched";
    uint64_t bytes = 0;
    for (const weights::ChunkSize& chunk : weights::ChunksOf(snapshot.manifest)) {
      if (!adapter.contains(chunk.sha256)) bytes += chunk.bytes;
    }
    EXPECT_EQ(offered.bytes, bytes);
  }
}

// Chunks that a file has as the learner keeps them stay there; rounded ones are held.
// Promise: A worker's base is in host memory once.
TEST(LocalWeightsTest, ChunksThatAFileHasTakeNoMemory) {
  for (const v1::StorageDType compute : {v1::STORAGE_D_TYPE_F32, v1::STORAGE_D_TYPE_BF16}) {
    const testing::ScopedDirectory scratch;
    std::filesystem::copy(kModel, scratch.path(), std::filesystem::copy_options::recursive);
    const weights::Snapshot snapshot = Published(compute, "fast");
    weights::ChunkStore store(/*snapshots_max=*/1, uint64_t{1} << 30);
    auto download = weights::Download::Start(snapshot.manifest, store).value();
    const uint64_t all = store.bytes();
    const uint64_t taken =
        LocalWeights::Open(scratch.path()).value()->Offer(snapshot.manifest, download);
    ASSERT_GT(taken, all / 2);
    if (compute == v1::STORAGE_D_TYPE_BF16) {
      EXPECT_GT(store.bytes(), all / 2);
      continue;
    }
    EXPECT_EQ(store.bytes(), all - taken);
    EXPECT_EQ(store.pool().bytes_kept(), 0u);
    const auto& [hash, placed] = *download.placed().begin();
    EXPECT_EQ(Sha256(*store.Read(hash).value()), hash);
    const std::string file = scratch.path() / "transformer/diffusion_pytorch_model.safetensors";
    std::ofstream(file) << "another model";
    const absl::Status changed = store.Read(hash).status();
    EXPECT_EQ(changed.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(changed.message()), ::testing::HasSubstr(file));
  }
}

TEST(LocalWeightsTest, AnotherModelGivesOnlyWhatIsEqual) {
  const weights::Snapshot snapshot = Published(v1::STORAGE_D_TYPE_BF16, "fast");
  const Offered offered = OfferOf(snapshot, kOtherModel);
  EXPECT_GT(offered.lacking.size(), offered.lacking_before / 2);
  EXPECT_FALSE(LocalWeights::Open("/nowhere").ok());
}

}  // namespace
}  // namespace oxbow::rollout
