// SPDX-License-Identifier: Apache-2.0
// Frozen chunks that are read from where they are: the same snapshot, and no wrong byte is sent.
#include "services/weights/tensor_place.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/weights/chunk_store.h"
#include "services/weights/snapshot_maker.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::weights {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kChunk = 1000;
constexpr uint64_t kBegin = 7;  // In the file.

class TensorPlaceTest : public ::testing::Test {
 protected:
  TensorPlaceTest() {
    for (size_t i = 0; i < 2500; ++i) base_["w"].data += static_cast<char>(i % 251);
    base_["w"].dtype = io::DType::kU8;
    base_["w"].shape = {2500};
    base_["other"] = {.dtype = io::DType::kU8, .shape = {3}, .data = "abc"};
    trained_["t"] = {.dtype = io::DType::kU8, .shape = {4}, .data = "1234"};
    Write(base_["w"].data);
  }
  void Write(const std::string& bytes) const {
    std::ofstream(file_, std::ios::binary) << std::string(kBegin, 'x') << bytes << "end";
  }
  std::shared_ptr<const TensorPlace> InFile() const {
    return PlaceInFile(OpenedFile::Open(file_.string()).value(), kBegin, base_.at("w").data.size());
  }
  Snapshot Published(const std::shared_ptr<const TensorPlace>& of_w) const {
    const auto place = [&](const std::string& name) { return name == "w" ? of_w : nullptr; };
    return SnapshotMaker(SourceOf(base_), kChunk, /*threads=*/2, place)
        .Make({.epoch = Epoch(1), .version = PolicyVersion(1), .step = {}}, SourceOf(trained_));
  }
  // All that a worker would get.
  static absl::StatusOr<TensorBytesByName> Fetched(const Snapshot& snapshot) {
    ChunkStore store(/*snapshots_max=*/1, /*bytes_max=*/1 << 20);
    EXPECT_TRUE(store.Add(snapshot).ok());
    return Fetched(snapshot.manifest, store);
  }
  static absl::StatusOr<TensorBytesByName> Fetched(const v1::SnapshotManifest& manifest,
                                                   const ChunkStore& store) {
    ChunksByHash chunks;
    for (const ChunkSize& chunk : ChunksOf(manifest)) {
      OXBOW_ASSIGN_OR_RETURN(chunks[chunk.sha256], store.Read(chunk.sha256));
      if (chunks[chunk.sha256] == nullptr) return absl::NotFoundError("a chunk is not here");
    }
    return AssembleTensors(manifest, chunks);
  }

  testing::ScopedDirectory scratch_;
  const std::filesystem::path file_ = scratch_.path() / "w.safetensors";
  TensorBytesByName base_, trained_;
};

// Promise: No byte of a model that changed under the run is sent.
TEST_F(TensorPlaceTest, ASnapshotIsTheSameWhereverItsFrozenBytesAre) {
  const Snapshot held = Published(nullptr);
  EXPECT_EQ(held.placed, nullptr);
  for (const auto& place :
       {InFile(), PlaceInMemory(base_.at("w").data, std::make_shared<int>(0))}) {
    const Snapshot placed = Published(place);
    EXPECT_EQ(placed.manifest.sha256(), held.manifest.sha256());
    EXPECT_EQ(placed.manifest.base_sha256(), held.manifest.base_sha256());
    ASSERT_NE(placed.placed, nullptr);
    EXPECT_EQ(placed.placed->size(), 3u);
    EXPECT_EQ(placed.chunks.size(), 2u) << "those of the other tensor and of what trains";
    const auto got = Fetched(placed);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->at("w").data, base_.at("w").data);
    EXPECT_EQ(got->at("other").data, "abc");
  }
}

TEST_F(TensorPlaceTest, APlaceWithOtherBytesIsNotTaken) {
  std::string other = base_.at("w").data;
  other[1700] ^= 1;
  Write(other);
  const Snapshot snapshot = Published(InFile());
  EXPECT_EQ(snapshot.placed, nullptr);
  EXPECT_EQ(Fetched(snapshot)->at("w").data, base_.at("w").data);
  EXPECT_EQ(Published(PlaceInMemory("short", nullptr)).placed, nullptr);
}

// Written into in place, and cut short: what a careless copy of another model does.
// Promise: No byte of a model that changed under the run is sent. Frozen chunks that are read from
// the model's files are checked against the manifest. A file that was written to, or cut short, is
// named in one error for each time, and its chunks are not sent until it is back; a file that was
// replaced or deleted is still the old one for the run.
TEST_F(TensorPlaceTest, AFileThatChangesUnderTheRunIsNamedAndNoByteOfItIsSent) {
  const Snapshot snapshot = Published(InFile());
  std::string other = base_.at("w").data;
  other[1700] ^= 1;
  Write(other);
  EXPECT_EQ(Fetched(snapshot).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Fetched(snapshot).status().message()), HasSubstr(file_.string()));
  ASSERT_EQ(::truncate(file_.c_str(), 1500), 0);
  EXPECT_EQ(Fetched(snapshot).status().code(), absl::StatusCode::kDataLoss);
  Write(base_.at("w").data);
  EXPECT_TRUE(Fetched(snapshot).ok()) << "it was brought back";
}

// Promise: No byte of a model that changed under the run is sent.
TEST_F(TensorPlaceTest, AFileThatAnotherReplacesIsStillTheOldOneForTheRun) {
  const Snapshot snapshot = Published(InFile());
  ASSERT_TRUE(WriteFileAtomically(file_, "another model").ok());
  const auto got = Fetched(snapshot);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->at("w").data, base_.at("w").data);
  std::filesystem::remove(file_);
  EXPECT_TRUE(Fetched(snapshot).ok());
}

TEST_F(TensorPlaceTest, PlacedChunksTakeNothingOfTheBudgetAndStayAsLongAsTheirSnapshot) {
  ChunkStore store(/*snapshots_max=*/1, /*bytes_max=*/100);
  uint64_t fresh = 0;
  const Snapshot first = Published(InFile());
  ASSERT_TRUE(store.Add(first, &fresh).ok());
  EXPECT_EQ(fresh, 2507u);
  EXPECT_EQ(store.bytes(), 7u);
  trained_["t"].data = "5678";
  const Snapshot second = Published(InFile());
  ASSERT_TRUE(store.Add(second, &fresh).ok());
  EXPECT_EQ(fresh, 4u);
  EXPECT_TRUE(Fetched(second.manifest, store).ok());
  EXPECT_EQ(Fetched(first.manifest, store).status().code(), absl::StatusCode::kNotFound)
      << "its trained part has gone";
  const std::string hash = second.placed->begin()->first;
  EXPECT_EQ(store.Find(hash), nullptr) << "it is not in memory";
  EXPECT_NE(store.Read(hash).value(), nullptr);
}

}  // namespace
}  // namespace oxbow::weights
