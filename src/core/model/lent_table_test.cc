// SPDX-License-Identifier: Apache-2.0
#include "core/model/lent_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/checksum.h"

namespace oxbow::model {
namespace {

const Shapes kLentShapes = {
    {"blocks.0.weight", {3, 5}}, {"empty", {0, 7}}, {"name with spaces", {300}}, {"scale", {}}};

LentTable SomeTable() {
  LentTable table = *PlacedTensors(kLentShapes, {{"blocks.0.weight", at::kBFloat16},
                                                 {"empty", at::kBFloat16},
                                                 {"name with spaces", at::kFloat},
                                                 {"scale", at::kFloat}});
  table.machine = "1f2e";
  table.gpu = "0000:3B:00.0";
  table.lender = 4711;
  table.handle = std::string("\0\n\xff x", 5);
  return table;
}

// The text of a table in which somebody wrote something else, with a checksum of its own.
std::string Forged(const std::string& from, const std::string& to) {
  std::string said = LentText(SomeTable());
  said.resize(said.rfind("xxh3 "));
  const std::string forged = absl::StrReplaceAll(said, {{from, to}});
  EXPECT_NE(forged, said) << from;
  return absl::StrCat(forged, "xxh3 ", absl::BytesToHexString(Checksum128(forged)), "\n");
}

TEST(LentTableTest, TensorsHavePlacesBehindEachOther) {
  const LentTable table = SomeTable();
  uint64_t end = 0;
  for (const auto& [name, tensor] : table.tensors) {
    EXPECT_GE(tensor.begin, end) << name;
    EXPECT_EQ(tensor.begin % kLentAlignment, 0u) << name;
    EXPECT_EQ(tensor.shape, kLentShapes.at(name));
    end = tensor.begin + *LentBytes(tensor);
  }
  EXPECT_GE(table.bytes, end);
  EXPECT_EQ(*LentBytes(table.tensors.at("blocks.0.weight")), 30u);
  EXPECT_EQ(*LentBytes(table.tensors.at("empty")), 0u);
  EXPECT_EQ(*LentBytes(table.tensors.at("scale")), 4u);
}

// One product reads several weights where they lie side by side.
TEST(LentTableTest, TensorsOfAGroupFollowOneAnother) {
  const Shapes shapes = {{"a", {3}}, {"k", {4, 8}}, {"other", {5}}, {"q", {2, 8}}, {"v", {3, 8}}};
  std::map<std::string, at::ScalarType> types;
  for (const auto& [name, shape] : shapes) types[name] = at::kBFloat16;
  const LentTable table = *PlacedTensors(shapes, types, {{"q", "k", "v"}});
  const auto begin = [&](const char* name) { return table.tensors.at(name).begin; };
  EXPECT_EQ(begin("k"), begin("q") + 2 * 8 * 2);
  EXPECT_EQ(begin("v"), begin("k") + 4 * 8 * 2);
  for (const char* first : {"q", "a", "other"}) EXPECT_EQ(begin(first) % kLentAlignment, 0u);
  EXPECT_EQ(table.tensors.size(), shapes.size());
  EXPECT_TRUE(ParseLent(LentText(table)).ok());
}

TEST(LentTableTest, WhatIsWrittenIsRead) {
  const LentTable table = SomeTable();
  const auto read = ParseLent(LentText(table));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, table);
}

TEST(LentTableTest, ATextThatIsCutOrChangedIsRefused) {
  const std::string text = LentText(SomeTable());
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_TRUE(absl::IsDataLoss(ParseLent(text.substr(0, i)).status())) << "cut at " << i;
    EXPECT_TRUE(absl::IsDataLoss(ParseLent(text.substr(i + 1)).status())) << "from " << i;
    for (const int bit : {0, 1, 5}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ 1 << bit);
      EXPECT_TRUE(absl::IsDataLoss(ParseLent(changed).status())) << "changed at " << i;
    }
  }
  EXPECT_TRUE(absl::IsDataLoss(ParseLent(text + "\n").status()));
}

// By a program with a fault, whose checksum is right.
TEST(LentTableTest, NoTensorIsOutsideTheBlock) {
  ASSERT_TRUE(ParseLent(Forged("machine 1f2e", "machine 1f2f")).ok());
  const std::string bytes = absl::StrCat("bytes ", SomeTable().bytes);
  for (const auto& [from, to] : {std::pair<std::string, std::string>{bytes, "bytes 1024"},
                                 {bytes, "bytes -1"},
                                 {bytes, "bytes"},
                                 {"BF16 0 3x5", "BF16 1 3x5"},
                                 {"BF16 0 3x5", "BF16 0 3x-5"},
                                 {"BF16 0 3x5", "BF16 0 3x5000"},
                                 {"BF16 0 3x5", "BF16 18446744073709551104 3x5"},
                                 {"BF16 0 3x5", "BF16 0 4294967296x4294967296x4294967296"},
                                 {"BF16 0 3x5", "F64 0 3x5"},
                                 {"BF16 0 3x5", "BF16 0"},
                                 {"tensor", "tenor"},
                                 {"name with spaces", "scale"},
                                 {"weights 1", "weights 2"}}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseLent(Forged(from, to)).status())) << to;
  }
}

TEST(LentTableTest, WhatCannotBeLentIsRefused) {
  const auto place = [](const std::vector<int64_t>& shape, at::ScalarType type) {
    return PlacedTensors({{"weight", shape}}, {{"weight", type}}).status();
  };
  EXPECT_TRUE(place({2}, at::kFloat).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(place({2}, at::kChar)));
  EXPECT_TRUE(absl::IsInvalidArgument(place({-2}, at::kFloat)));
  EXPECT_TRUE(absl::IsInvalidArgument(place({std::numeric_limits<int64_t>::max(), 3}, at::kFloat)));
}

}  // namespace
}  // namespace oxbow::model
