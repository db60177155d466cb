// SPDX-License-Identifier: Apache-2.0
// The store holds the newest snapshots, each distinct chunk once, within its
// budget.
#include "services/weights/chunk_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "base/checksum.h"
#include "base/sha256.h"
#include "services/weights/snapshot_maker.h"

namespace oxbow::weights {
namespace {

Snapshot Of(const std::string& base, const std::string& adapter) {
  const auto tensor = [](const std::string& data) {
    return io::TensorBytes{io::DType::kU8, {static_cast<int64_t>(data.size())}, data};
  };
  return MakeSnapshot({}, {{"base", tensor(base)}}, {{"adapter", tensor(adapter)}});
}

TEST(ChunkStoreTest, SharedChunksAreHeldOnceAndLiveAsLongAsAnyUser) {
  ChunkStore store(2, 1000);
  ASSERT_TRUE(store.Add(Of("basebase", "v1")).ok());
  ASSERT_TRUE(store.Add(Of("basebase", "v2")).ok());
  EXPECT_EQ(store.bytes(), 12u);
  ASSERT_TRUE(store.Add(Of("basebase", "v3")).ok());
  EXPECT_EQ(store.snapshots(), 2u);
  EXPECT_EQ(store.Find(Sha256("v1")), nullptr);
  EXPECT_NE(store.Find(Sha256("v2")), nullptr);
  EXPECT_NE(store.Find(Sha256("basebase")), nullptr);
  EXPECT_EQ(store.bytes(), 12u);
}

// Promise: Memory is bounded.
TEST(ChunkStoreTest, OldSnapshotsGoWhenBytesRunOutButNeverTheNewest) {
  ChunkStore store(10, 10);
  ASSERT_TRUE(store.Add(Of("1234", "a")).ok());
  ASSERT_TRUE(store.Add(Of("5678", "b")).ok());
  ASSERT_TRUE(store.Add(Of("90ab", "c")).ok());
  EXPECT_EQ(store.snapshots(), 2u);
  EXPECT_EQ(store.bytes(), 10u);
  EXPECT_EQ(store.Find(Sha256("1234")), nullptr);
  EXPECT_EQ(store.Add(Of("0123456789", "d")).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store.bytes(), 10u);
  EXPECT_NE(store.Find(Sha256("90ab")), nullptr);
}

// A frozen chunk that is read from its place, and later a trained one of the same bytes.
TEST(ChunkStoreTest, AChunkThatWasPlacedCountsFromWhenItIsHeld) {
  ChunkStore store(2, 10);
  const std::string bytes = "basebase";
  Snapshot placed = Of(bytes, "v1");
  placed.chunks.erase(Sha256(bytes));
  placed.placed = std::make_shared<const PlacedChunks>(
      PlacedChunks{{Sha256(bytes),
                    {.place = PlaceInMemory(bytes, nullptr), .begin = 0, .bytes = 8, .xxh3 = {}}}});
  ASSERT_TRUE(store.Add(placed).ok());
  EXPECT_EQ(store.bytes(), 2u);
  ASSERT_TRUE(store.Add(Of(bytes, "v1")).ok());
  EXPECT_EQ(store.bytes(), 10u);
  EXPECT_EQ(store.snapshots(), 2u);
  ASSERT_TRUE(store.Add(Of("other", "v2")).ok());
  EXPECT_EQ(store.snapshots(), 1u) << "the budget is kept";
  EXPECT_EQ(store.bytes(), 7u) << "what went counts no more";
}

// The case of a worker that has the bytes of a chunk elsewhere, too.
// Promise: A worker's base is in host memory once.
TEST(ChunkStoreTest, AChunkThatGetsAPlaceIsHeldNoLongerAndReadFromThere) {
  ChunkStore store(2, 10);
  const std::string bytes = "basebase", hash = Sha256(bytes);
  const auto placed = [](const std::string& there, const std::string& xxh3_of) {
    return std::make_shared<const PlacedChunk>(
        PlacedChunk{.place = PlaceInMemory(there, std::make_shared<const std::string>(there)),
                    .begin = 0,
                    .bytes = 8,
                    .xxh3 = Checksum128(xxh3_of)});
  };
  const Placed right = placed(bytes, bytes), wrong = placed("forgery!", bytes);
  ASSERT_TRUE(store.Expect({{hash, 8}, {"trained", 2}}).ok());
  const auto chunk = std::make_shared<const std::string>(bytes);
  store.Put(hash, chunk);
  store.Place("unasked", right);
  int told = 0;
  const ChunkStore::Listener listener(store, [&] { ++told; });
  store.Place(hash, right);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(chunk.use_count(), 1) << "it is held no longer";
  EXPECT_EQ(store.bytes(), 2u);
  EXPECT_EQ(store.Find(hash), nullptr);
  EXPECT_EQ(**store.Read(hash), bytes);
  store.Put(hash, chunk);
  EXPECT_EQ(chunk.use_count(), 1) << "it has its place";
  ASSERT_TRUE(store.Expect({{hash, 8}, {"newer", 8}}).ok()) << "its bytes do not count";
  EXPECT_EQ(store.bytes(), 10u);
  store.ForgetLost();
  EXPECT_EQ(store.Look(hash).placed, right);
  store.Place(hash, wrong);
  EXPECT_EQ(store.Read(hash).status().code(), absl::StatusCode::kDataLoss);
  store.ForgetLost();
  EXPECT_EQ(*store.Read(hash), nullptr);
  ASSERT_TRUE(store.Expect({{hash, 8}}).ok());
  EXPECT_EQ(store.bytes(), 8u) << "it counts from when it is wanted again";
}

// A base that gets its places in the network must not stay as memory for later chunks.
TEST(ChunkStoreTest, MemoryOfAChunkThatGetsAPlaceIsNotKept) {
  constexpr uint64_t kBytes = 1 << 20;
  ChunkStore store(2, 10 * kBytes);
  ASSERT_TRUE(store.Expect({{"a", kBytes}, {"b", kBytes}}).ok());
  for (const char* const hash : {"a", "b"}) {
    store.Put(hash, store.pool().Seal(store.pool().Take(kBytes) + std::string(kBytes, 'x')));
  }
  const auto there = std::make_shared<const std::string>(kBytes, 'x');
  store.Place("a", std::make_shared<const PlacedChunk>(
                       PlacedChunk{PlaceInMemory(*there, there), 0, kBytes, ""}));
  EXPECT_NE(store.Find("b"), nullptr) << "it would let the pool keep as much";
  EXPECT_EQ(store.pool().bytes_kept(), 0u);
}

TEST(ChunkStoreTest, ExpectedChunkIsToldOfWhenItIsPut) {
  ChunkStore store(2, 1000);
  ASSERT_TRUE(store.Expect({{"hash", 4}}).ok());
  EXPECT_EQ(store.bytes(), 4u);
  EXPECT_TRUE(store.Wants("hash"));
  EXPECT_EQ(store.Find("hash"), nullptr);
  int told = 0;
  {
    const ChunkStore::Listener listener(store, [&] { ++told; });
    store.Put("hash", std::make_shared<const std::string>("data"));
    EXPECT_EQ(told, 1);
    const Chunk chunk = store.Find("hash");
    ASSERT_NE(chunk, nullptr);
    EXPECT_EQ(*chunk, "data");
    store.Put("unasked", chunk);
    EXPECT_EQ(store.Find("unasked"), nullptr);
  }
  store.Put("hash", store.Find("hash"));
  EXPECT_EQ(told, 1) << "nobody listens any more";
}

TEST(ChunkStoreTest, MemoryOfDroppedChunksIsUsedAgainAndNeverMoreThanIsInUse) {
  constexpr uint64_t kBytes = 1 << 20;
  ChunkPool pool;
  std::vector<Chunk> chunks;
  for (int i = 0; i < 4; ++i) {
    chunks.push_back(pool.Seal(pool.Take(kBytes) + std::string(kBytes, 'x')));
  }
  const char* memory = chunks.back()->data();
  chunks.pop_back();
  EXPECT_GE(pool.bytes_kept(), kBytes);
  std::string again = pool.Take(kBytes);
  EXPECT_EQ(again.data(), memory);
  EXPECT_TRUE(again.empty());
  EXPECT_EQ(pool.bytes_kept(), 0u);
  chunks.pop_back();
  EXPECT_GE(pool.bytes_kept(), kBytes);
  chunks.clear();
  EXPECT_EQ(pool.bytes_kept(), 0u) << "nothing is in use, so nothing is kept";
  EXPECT_LT(pool.Take(10).capacity(), kBytes);  // A small chunk takes no large one's memory.
}

}  // namespace
}  // namespace oxbow::weights
