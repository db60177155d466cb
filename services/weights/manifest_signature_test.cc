// SPDX-License-Identifier: Apache-2.0
#include "services/weights/manifest_signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/sha256.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {
namespace {

v1::SnapshotManifest Manifest() {
  v1::SnapshotManifest manifest;
  manifest.set_epoch(3);
  manifest.set_policy_version(7);
  manifest.set_learner_step(5);
  manifest.set_chunk_bytes(kSnapshotChunkBytes);
  manifest.set_sha256(Sha256("all"));
  manifest.set_base_sha256(Sha256("base"));
  v1::SnapshotManifest::Probe& probe = *manifest.mutable_probe();
  probe.set_seed(11);
  probe.set_digest(Sha256("out"));
  probe.add_outputs(0.5F);
  probe.set_tolerance(0.25);
  return manifest;
}

TEST(ManifestSignatureTest, TheLearnersSignatureIsAcceptedAndNoOther) {
  const ManifestSigner learner;
  const ManifestSigner stranger;
  v1::SnapshotManifest manifest = Manifest();
  EXPECT_TRUE(absl::IsDataLoss(CheckSignature(manifest, learner.public_key()))) << "unsigned";
  learner.Sign(manifest);
  EXPECT_TRUE(CheckSignature(manifest, learner.public_key()).ok());
  EXPECT_TRUE(absl::IsDataLoss(CheckSignature(manifest, stranger.public_key())));
  EXPECT_TRUE(absl::IsDataLoss(CheckSignature(manifest, "no key")));
  stranger.Sign(manifest);
  EXPECT_TRUE(absl::IsDataLoss(CheckSignature(manifest, learner.public_key())));
}

// The tensors are covered by the manifest's own hash (CheckManifest).
TEST(ManifestSignatureTest, AnyChangedFieldIsNoticed) {
  const ManifestSigner learner;
  using Change = std::function<void(v1::SnapshotManifest&)>;
  const Change changes[] = {
      [](auto& m) { m.set_epoch(4); },
      [](auto& m) { m.set_policy_version(8); },
      [](auto& m) { m.set_learner_step(6); },
      [](auto& m) { m.set_chunk_bytes(1); },
      [](auto& m) { m.set_sha256(Sha256("other")); },
      [](auto& m) { m.set_base_sha256(""); },
      [](auto& m) { m.mutable_probe()->set_seed(12); },
      [](auto& m) { m.mutable_probe()->set_digest(""); },
      [](auto& m) { m.mutable_probe()->set_outputs(0, 0.25F); },
      [](auto& m) { m.mutable_probe()->clear_outputs(); },
      [](auto& m) { m.mutable_probe()->set_tolerance(1e9); },
      [](auto& m) { m.mutable_signature()->front() ^= 1; },
      [](auto& m) { m.mutable_signature()->pop_back(); },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    v1::SnapshotManifest manifest = Manifest();
    learner.Sign(manifest);
    ASSERT_TRUE(CheckSignature(manifest, learner.public_key()).ok());
    changes[i](manifest);
    EXPECT_TRUE(absl::IsDataLoss(CheckSignature(manifest, learner.public_key()))) << i;
  }
}

}  // namespace
}  // namespace oxbow::weights
