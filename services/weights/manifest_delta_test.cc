// SPDX-License-Identifier: Apache-2.0
#include "services/weights/manifest_delta.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "base/sha256.h"

namespace oxbow::weights {
namespace {

// Tensors by name, each with one of four contents.
v1::SnapshotManifest Manifest(std::mt19937_64& random, uint64_t version) {
  v1::SnapshotManifest manifest;
  manifest.set_epoch(3);
  manifest.set_policy_version(version);
  manifest.set_learner_step(2 * version);
  manifest.set_chunk_bytes(1024);
  manifest.set_base_sha256("base");
  manifest.mutable_probe()->set_seed(random());
  for (char name = 'a'; name <= 'h'; ++name) {
    if (random() % 3 == 0) continue;
    v1::TensorManifest& tensor = *manifest.add_tensors();
    tensor.set_name(std::string(1, name));
    tensor.add_shape(5);
    tensor.add_chunk_sha256(std::string(32, static_cast<char>('0' + random() % 4)));
  }
  manifest.set_sha256(Sha256(manifest.SerializeAsString()));
  return manifest;
}

// Promise: A watcher is told what differs. A watcher that names one of the last manifests is sent
// what differs from it. The result is checked by the hash of the whole manifest. After one that it
// refuses it is sent the next one whole.
TEST(ManifestDeltaTest, OlderAndDeltaMakeTheNewerWhateverTheyAre) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (uint64_t round = 0; round < 500; ++round) {
    const v1::SnapshotManifest older = Manifest(random, round);
    const v1::SnapshotManifest newer = Manifest(random, round + 1);
    const v1::ManifestDelta delta = DeltaOf(older, newer);
    const auto made = ManifestFrom(older, delta);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->SerializeAsString(), newer.SerializeAsString());
    EXPECT_EQ(DeltaOf(newer, newer).changed().tensors_size(), 0);
    EXPECT_EQ(DeltaOf(newer, newer).removed_size(), 0);
  }
}

TEST(ManifestDeltaTest, ADeltaNamesOnlyWhatDiffers) {
  std::mt19937_64 random(1);
  v1::SnapshotManifest older = Manifest(random, 1);
  for (int i = 0; i < 1000; ++i) {
    v1::TensorManifest& tensor = *older.add_tensors();
    tensor.set_name("base." + std::to_string(1000 + i));
    tensor.add_chunk_sha256(std::string(32, 'b'));
  }
  v1::SnapshotManifest newer = older;
  newer.set_policy_version(2);
  newer.set_sha256("newer");
  newer.mutable_tensors(0)->set_chunk_sha256(0, std::string(32, 'n'));
  const v1::ManifestDelta delta = DeltaOf(older, newer);
  EXPECT_EQ(delta.changed().tensors_size(), 1);
  EXPECT_LT(delta.ByteSizeLong(), newer.ByteSizeLong() / 20);
}

// Promise: A watcher is told what differs.
TEST(ManifestDeltaTest, ADeltaToAnotherManifestAndOneOutOfOrderAreRefused) {
  std::mt19937_64 random(2);
  const v1::SnapshotManifest older = Manifest(random, 1);
  const v1::SnapshotManifest newer = Manifest(random, 2);
  const v1::ManifestDelta delta = DeltaOf(older, newer);
  EXPECT_EQ(ManifestFrom(newer, delta).status().code(), absl::StatusCode::kFailedPrecondition);
  v1::ManifestDelta removes = delta;
  removes.add_removed("not there");
  EXPECT_EQ(ManifestFrom(older, removes).status().code(), absl::StatusCode::kInvalidArgument);
  v1::ManifestDelta unordered = delta;
  for (const char* name : {"y", "x"}) unordered.mutable_changed()->add_tensors()->set_name(name);
  EXPECT_EQ(ManifestFrom(older, unordered).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace oxbow::weights
