// SPDX-License-Identifier: Apache-2.0
#include "core/flow/split_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace oxbow::flow {
namespace {

// A random forest: which steps split, how wide, and how many trees.
struct Forest {
  SplitTree tree;
  int steps = 0;
  uint32_t group_size = 0;
};

Forest RandomForest(std::mt19937& random) {
  Forest forest{.steps = 2 + static_cast<int>(random() % 8)};
  forest.tree.width = 2 + random() % 3;
  for (int step = 0; step + 1 < forest.steps && forest.tree.steps.size() < 3; ++step) {
    if (random() % 2 == 0) forest.tree.steps.push_back(step);
  }
  forest.group_size = forest.tree.Leaves() * (1 + random() % 3);
  return forest;
}

std::set<uint32_t> NodesOf(const Forest& forest, int step) {
  std::set<uint32_t> nodes;
  for (uint32_t sample = 0; sample < forest.group_size; ++sample) {
    nodes.insert(forest.tree.FirstLeaf(sample, step));
  }
  return nodes;
}

// Promise: Trees share steps and change no bit.

TEST(SplitTreeTest, WithoutSplitsEverySampleIsATreeByItself) {
  const SplitTree none;
  EXPECT_EQ(none.Leaves(), 1u);
  for (uint32_t sample = 0; sample < 5; ++sample) EXPECT_EQ(none.FirstLeaf(sample, -1), sample);
  EXPECT_EQ(NodesOfGroup(none, 5, 10), 50);
}

// Splits at 0 and 2 of width 2: 1 root, 2 nodes of x_1 and x_2, 4 of x_3 and x_4.
TEST(SplitTreeTest, ASmallTreeByHand) {
  const SplitTree tree{.steps = {0, 2}, .width = 2};
  EXPECT_EQ(tree.Leaves(), 4u);
  EXPECT_EQ(tree.FirstLeaf(7, -1), 4u) << "the second tree begins at sample 4";
  EXPECT_EQ(tree.FirstLeaf(3, 0), 2u);
  EXPECT_EQ(tree.FirstLeaf(3, 1), 2u);
  EXPECT_EQ(tree.FirstLeaf(3, 2), 3u);
  EXPECT_EQ(NodesOfGroup(tree, 4, 4), 1 + 2 + 2 + 4);
  EXPECT_EQ(NodesOfGroup(tree, 8, 4), 2 * (1 + 2 + 2 + 4));
}

TEST(SplitTreeTest, ANodeHasWidthChildrenAtASplitAndOneElsewhere) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const Forest forest = RandomForest(random);
    for (int step = 0; step < forest.steps; ++step) {
      const size_t before = NodesOf(forest, step - 1).size();
      const bool splits = std::ranges::find(forest.tree.steps, step) != forest.tree.steps.end();
      const size_t children = splits ? forest.tree.width : 1;
      EXPECT_EQ(NodesOf(forest, step).size(), before * children) << "step " << step;
    }
    EXPECT_EQ(NodesOf(forest, forest.steps - 1).size(), forest.group_size) << "leaves";
  }
}

TEST(SplitTreeTest, SamplesThatPartNeverMeetAgain) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const Forest forest = RandomForest(random);
    for (uint32_t a = 0; a < forest.group_size; ++a) {
      for (uint32_t b = 0; b < a; ++b) {
        bool apart = false;
        for (int step = -1; step < forest.steps; ++step) {
          const bool now = forest.tree.FirstLeaf(a, step) != forest.tree.FirstLeaf(b, step);
          EXPECT_GE(now, apart) << "samples " << b << " and " << a << " after step " << step;
          apart = now;
        }
      }
    }
  }
}

TEST(SplitTreeTest, TheFirstLeafOfANodeIsItsOwnFirstLeaf) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const Forest forest = RandomForest(random);
    for (uint32_t sample = 0; sample < forest.group_size; ++sample) {
      for (int step = -1; step < forest.steps; ++step) {
        const uint32_t first = forest.tree.FirstLeaf(sample, step);
        EXPECT_LE(first, sample);
        EXPECT_EQ(forest.tree.FirstLeaf(first, step), first);
      }
    }
  }
}

TEST(SplitTreeTest, RowsOfSeveralGroupsShareNoNodes) {
  const SplitTree tree{.steps = {1}, .width = 2};
  const std::vector<Member> members = {{7, 1}, {7, 0}, {8, 0}, {8, 1}, {7, 2}};
  const SharedRows shared = NodesAfter(tree, members, 0);
  EXPECT_EQ(shared.first, (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(shared.node, (std::vector<int64_t>{0, 0, 1, 1, 2}));
  EXPECT_EQ(NodesAfter(tree, members, 1).first.size(), 5u);
}

TEST(SplitTreeTest, AGroupTakesARowOfTheNetworkForEachNode) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const Forest forest = RandomForest(random);
    int64_t rows = 0;
    for (int step = 0; step < forest.steps; ++step) {
      rows += static_cast<int64_t>(NodesOf(forest, step - 1).size());
    }
    EXPECT_EQ(NodesOfGroup(forest.tree, forest.group_size, forest.steps), rows);
  }
}

}  // namespace
}  // namespace oxbow::flow
