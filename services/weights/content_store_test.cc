// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/weights/chunk_store.h"

namespace oxbow::weights {
namespace {

Chunk Bytes(size_t count) { return std::make_shared<const std::string>(count, 'x'); }

// Promise: Memory is bounded. Queues, chunk stores, held conditioning, uploads and the backlog for
// an absent buffer have a limit. Past it they refuse or drop. Sizes from the wire are checked
// before memory is taken. The replay buffer's resident memory stays under its budget through a run.
// A resume reads the end of the step log and of the metrics alone, however long the run was.
TEST(ContentStoreTest, KeepsWhatWasUsedLastWithinItsLimit) {
  ContentStore store(/*bytes_max=*/30);
  for (const char* name : {"a", "b", "c"}) store.Put(name, Bytes(10));
  ASSERT_NE(store.Find("a"), nullptr);
  store.Put("d", Bytes(10));
  EXPECT_EQ(store.bytes(), 30u);
  EXPECT_EQ(store.Find("b"), nullptr) << "it was used longest ago";
  EXPECT_NE(store.Find("a"), nullptr);
  EXPECT_NE(store.Find("c"), nullptr);
  EXPECT_NE(store.Find("d"), nullptr);
  store.Put("large", Bytes(31));
  EXPECT_EQ(store.Find("large"), nullptr);
  EXPECT_EQ(store.bytes(), 30u) << "what does not fit pushes nothing out";
  store.Put("two", Bytes(20));
  EXPECT_EQ(store.bytes(), 30u);
  EXPECT_NE(store.Find("d"), nullptr);
}

// Promise: Conditioning is what the learner made.
TEST(ContentStoreTest, FindsWhatSomebodyElseHoldsAsLongAsHeDoes) {
  ContentStore store(/*bytes_max=*/0);
  Chunk held = Bytes(10);
  store.Put("a", held);
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(store.Find("a"), held);
  Chunk again = store.Put("a", Bytes(10));
  EXPECT_EQ(again, held) << "one copy is shared";
  held.reset();
  EXPECT_EQ(store.Find("a"), again) << "who put it last still holds it";
  again.reset();
  EXPECT_EQ(store.Find("a"), nullptr);
}

TEST(ContentStoreTest, TheNamesOfWhatIsGoneTakeNoRoom) {
  ContentStore store(/*bytes_max=*/100);
  const Chunk held = Bytes(50);
  store.Put("held", held);
  for (int i = 0; i < 10'000; ++i) store.Put(absl::StrCat(i), Bytes(10));
  EXPECT_LE(store.bytes(), 100u);
  EXPECT_LT(store.names(), 100u);
  EXPECT_EQ(store.Find("held"), held);
  EXPECT_NE(store.Find("9999"), nullptr);
}

}  // namespace
}  // namespace oxbow::weights
