// SPDX-License-Identifier: Apache-2.0
// A snapshot gives back what was put in, shares what did not change, and
// notices every altered bit.
#include "services/weights/snapshot.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "services/weights/snapshot_maker.h"

namespace oxbow::weights {
namespace {

io::TensorBytes Bytes(std::mt19937_64& random, size_t size) {
  std::string data(size, '\0');
  for (char& byte : data) byte = static_cast<char>(random());
  return {io::DType::kU8, {static_cast<int64_t>(size)}, data};
}

TEST(SnapshotTest, AssemblesWhatWasPublishedWhateverTheChunkSize) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    const TensorBytesByName frozen = {{"base", Bytes(random, random() % 200)},
                                      {"empty", Bytes(random, 0)}};
    const TensorBytesByName trained = {{"a", Bytes(random, random() % 200)}};
    const Snapshot snapshot = MakeSnapshot({}, frozen, trained, 1 + random() % 70);
    ASSERT_TRUE(CheckManifest(snapshot.manifest, 1000).ok());
    const TensorBytesByName back = AssembleTensors(snapshot.manifest, snapshot.chunks);
    ASSERT_EQ(back.size(), 3u);
    EXPECT_EQ(back.at("base").data, frozen.at("base").data);
    EXPECT_EQ(back.at("empty").data, "");
    EXPECT_EQ(back.at("a").data, trained.at("a").data);
    EXPECT_EQ(ChunksOf(snapshot.manifest).size(), snapshot.chunks.size());
  }
}

// Promise: A publication takes one copy of the weights.
TEST(SnapshotTest, AMakerHashesAgainOnlyWhatChanged) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const TensorBytesByName frozen = {{"base", Bytes(random, 100)}};
  TensorBytesByName trained = {{"a", Bytes(random, 95)}, {"b", Bytes(random, 64)}};
  SnapshotMaker maker(SourceOf(frozen), 16, /*threads=*/3);
  Snapshot before = maker.Make({.version = PolicyVersion(0)}, SourceOf(trained));
  for (uint64_t version = 1; version < 30; ++version) {
    if (version % 3 == 0) trained["a"].data[random() % trained["a"].data.size()] ^= 1;
    if (version % 7 == 0) trained["b"] = Bytes(random, random() % 80);  // Another shape.
    const SnapshotIdentity identity{.version = PolicyVersion(version)};
    const Snapshot made = maker.Make(identity, SourceOf(trained));
    const Snapshot whole = MakeSnapshot(identity, frozen, trained, 16);
    ASSERT_EQ(made.manifest.SerializeAsString(), whole.manifest.SerializeAsString());
    ASSERT_EQ(made.chunks.size(), whole.chunks.size());
    for (const auto& [hash, chunk] : whole.chunks) EXPECT_EQ(*made.chunks.at(hash), *chunk);
    for (const auto& [hash, chunk] : made.chunks) {
      if (before.chunks.contains(hash)) {
        EXPECT_EQ(chunk, before.chunks.at(hash));  // One memory.
      }
    }
    before = made;
  }
}

TEST(SnapshotTest, BaseHashChangesWithTheFrozenPartAlone) {
  std::mt19937_64 random(1);
  const TensorBytesByName frozen = {{"base", Bytes(random, 50)}};
  const Snapshot first = MakeSnapshot({}, frozen, {{"a", Bytes(random, 9)}});
  const Snapshot second = MakeSnapshot({}, frozen, {{"a", Bytes(random, 9)}});
  const Snapshot other = MakeSnapshot({}, {{"base", Bytes(random, 50)}}, {{"a", Bytes(random, 9)}});
  EXPECT_EQ(first.manifest.base_sha256(), second.manifest.base_sha256());
  EXPECT_NE(first.manifest.sha256(), second.manifest.sha256());
  EXPECT_NE(first.manifest.base_sha256(), other.manifest.base_sha256());
}

TEST(SnapshotTest, RefusesManifestsThatWereAltered) {
  std::mt19937_64 random(2);
  const v1::SnapshotManifest good =
      MakeSnapshot({}, {{"b", Bytes(random, 50)}}, {{"a", Bytes(random, 30)}}, 16).manifest;
  ASSERT_TRUE(CheckManifest(good, 80).ok());
  EXPECT_FALSE(CheckManifest(good, 79).ok());
  const std::vector<std::function<void(v1::SnapshotManifest&)>> alterations = {
      [](v1::SnapshotManifest& m) { m.mutable_tensors(0)->set_name("c"); },
      [](v1::SnapshotManifest& m) { m.mutable_tensors(0)->set_dtype(v1::DTYPE_BOOL); },
      [](v1::SnapshotManifest& m) { m.mutable_tensors(0)->set_shape(0, 40); },
      [](v1::SnapshotManifest& m) { m.mutable_tensors(0)->mutable_chunk_sha256(0)->front() ^= 1; },
      [](v1::SnapshotManifest& m) { m.mutable_tensors(0)->mutable_chunk_sha256()->RemoveLast(); },
      [](v1::SnapshotManifest& m) { m.mutable_tensors()->SwapElements(0, 1); },
      [](v1::SnapshotManifest& m) { m.set_chunk_bytes(8); },
      [](v1::SnapshotManifest& m) { m.set_chunk_bytes(0); },
      [](v1::SnapshotManifest& m) { m.mutable_tensors(0)->mutable_chunk_xxh3(0)->front() ^= 1; },
      [](v1::SnapshotManifest& m) { m.mutable_tensors(0)->mutable_chunk_xxh3()->RemoveLast(); },
      [](v1::SnapshotManifest& m) { m.mutable_tensors(0)->mutable_chunk_xxh3(0)->pop_back(); },
  };
  const auto everything = [](const std::string&) { return true; };
  for (size_t i = 0; i < alterations.size(); ++i) {
    v1::SnapshotManifest bad = good;
    alterations[i](bad);
    EXPECT_FALSE(CheckManifest(bad, 1000).ok()) << i;
    // Even with a hash that fits, what cannot be assembled is refused.
    bad.set_sha256(HashTensors(bad, everything));
    // Another dtype of the same width; another chunk; another checksum.
    const bool harmless = i == 1 || i == 3 || i == 8;
    EXPECT_EQ(CheckManifest(bad, 1000).ok(), harmless) << i;
  }
}

}  // namespace
}  // namespace oxbow::weights
