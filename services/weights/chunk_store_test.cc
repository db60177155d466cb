// The store holds the newest snapshots, each distinct chunk once, within its
// budget.
#include "services/weights/chunk_store.h"

#include <gtest/gtest.h>

#include "base/sha256.h"

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

}  // namespace
}  // namespace oxbow::weights
