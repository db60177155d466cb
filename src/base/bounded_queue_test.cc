// SPDX-License-Identifier: Apache-2.0
#include "base/bounded_queue.h"

#include <thread>

#include "gtest/gtest.h"

namespace oxbow {
namespace {

TEST(BoundedQueueTest, HandsItemsOutInOrder) {
  BoundedQueue<int> queue(4);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(queue.Push(i));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(queue.Pop(), i);
}

// Promise: Memory is bounded.
TEST(BoundedQueueTest, FullQueueRefusesAfterTheTimeout) {
  BoundedQueue<int> queue(1);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_FALSE(queue.Push(2, absl::ZeroDuration()));
  EXPECT_EQ(queue.size(), 1u);
}

TEST(BoundedQueueTest, DrainKeepsWhatIsQueuedAndCloseDropsIt) {
  BoundedQueue<int> drained(2), closed(2);
  EXPECT_TRUE(drained.Push(1));
  EXPECT_TRUE(closed.Push(1));
  drained.Drain();
  closed.Close();
  EXPECT_FALSE(drained.Push(2));
  EXPECT_EQ(drained.Pop(), 1);
  EXPECT_EQ(drained.Pop(), std::nullopt);
  EXPECT_EQ(closed.Pop(), std::nullopt);
}

TEST(BoundedQueueTest, CloseWakesAWaitingProducerAndConsumer) {
  BoundedQueue<int> full(1), empty(1);
  ASSERT_TRUE(full.Push(1));
  std::thread producer([&] { EXPECT_FALSE(full.Push(2)); });
  std::thread consumer([&] { EXPECT_EQ(empty.Pop(), std::nullopt); });
  full.Close();
  empty.Close();
  producer.join();
  consumer.join();
}

}  // namespace
}  // namespace oxbow
