// SPDX-License-Identifier: Apache-2.0
#include "io/metrics_file.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/file.h"
#include "gtest/gtest.h"

namespace oxbow::io {
namespace {

absl::StatusOr<std::vector<std::map<std::string, double>>> Read(const std::string& content) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "read.jsonl";
  EXPECT_TRUE(WriteFileAtomically(path, content).ok());
  return ReadMetrics(path);
}

TEST(MetricsFileTest, LineStartsWithStepAndTimeAndHoldsSortedNames) {
  EXPECT_EQ(FormatMetricsLine(12, 3.25,
                              {{"train/loss", std::nan("")},
                               {"buffer/size", 96},
                               {"eval/reward_mean", 0.1},
                               {"a\"b", -std::numeric_limits<double>::infinity()}}),
            "{\"step\":12,\"time/wall_s\":3.25,\"a\\\"b\":null,\"buffer/size\":96,"
            "\"eval/reward_mean\":0.1,\"train/loss\":null}\n");
}

TEST(MetricsFileTest, EveryFiniteDoubleReadsBackBitForBit) {
  constexpr uint64_t kSeed = 20260101;
  std::mt19937_64 generator(kSeed);
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(generator());
    if (!std::isfinite(value)) continue;
    const auto line = ParseMetricsLine(FormatMetricsLine(1, 0, {{"x", value}}));
    ASSERT_TRUE(line.has_value()) << value;
    EXPECT_EQ(std::bit_cast<uint64_t>(line->at("x")), std::bit_cast<uint64_t>(value))
        << "seed " << kSeed << " value " << value;
  }
}

TEST(MetricsFileTest, NullReadsAsNaN) {
  const auto lines = Read("{\"step\":1,\"x\":null,\"name\":\"text\"}\n");
  ASSERT_TRUE(lines.ok());
  EXPECT_TRUE(std::isnan(lines->at(0).at("x")));
  EXPECT_FALSE(lines->at(0).contains("name"));
}

TEST(MetricsFileTest, ACutAnywhereLosesAtMostTheLastLine) {
  const std::string first = FormatMetricsLine(1, 0.5, {{"x", 1.5}});
  const std::string both = first + FormatMetricsLine(2, 1.5, {{"x", 2.5}});
  for (size_t length = first.size(); length <= both.size(); ++length) {
    const auto lines = Read(both.substr(0, length));
    ASSERT_TRUE(lines.ok()) << lines.status();
    EXPECT_EQ(lines->size(), length == both.size() ? 2u : 1u) << length;
  }
}

TEST(MetricsFileTest, DamageInTheMiddleNamesTheLine) {
  const std::string line = FormatMetricsLine(1, 0, {});
  const auto lines = Read(line + "{\"step\":\n" + line);
  EXPECT_EQ(lines.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(lines.status().message().find("line 2"), std::string::npos) << lines.status();
}

TEST(MetricsFileTest, DamageIsFoundWhereverAReaderBegins) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "cut.jsonl";
  const std::string line = FormatMetricsLine(1, 0, {});
  const auto read = [&](const std::string& content, uint64_t& offset) {
    EXPECT_TRUE(WriteFileAtomically(path, content).ok());
    return ReadMetricsFrom(path, offset, [](const auto&) {});
  };
  uint64_t offset = line.size();
  EXPECT_TRUE(absl::IsDataLoss(read(line + "{\"step\":\n" + line, offset)));
  offset = 0;
  EXPECT_TRUE(read(line + "{\"step\":\n", offset).ok()) << "a crash left it";
  offset = 0;
  EXPECT_TRUE(read(line + "{\"step\":", offset).ok());
  EXPECT_EQ(offset, line.size()) << "its end may come yet";
}

TEST(MetricsFollowerTest, EachWholeLineComesOnce) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "followed_metrics.jsonl";
  std::filesystem::remove(path);
  MetricsFollower follower(path);
  const auto take = [&] {
    size_t lines = 0;
    follower.Take([&](const auto&) { ++lines; });
    return lines;
  };
  EXPECT_EQ(take(), 0u) << "no file yet";
  const auto append = [&](std::string_view text) {
    ASSERT_TRUE(AppendFile::Open(path)->Append(text, false).ok());
  };
  append("{\"step\":1}\n{\"step\":2}\n{\"st");
  EXPECT_EQ(take(), 2u);
  EXPECT_EQ(take(), 0u);
  append("ep\":3}\n");
  ASSERT_EQ(take(), 1u);
  ASSERT_TRUE(WriteFileAtomically(path, "{\"step\":1}\n").ok());
  EXPECT_EQ(take(), 0u) << "a resume went back";
  append("{\"step\":2}\n");
  ASSERT_EQ(take(), 1u);
}

TEST(MetricsFileTest, AHistoryWithoutEarlyValuesHasTheOthersWithTheirCounts) {
  History history;
  for (int step = 0; step <= 40; ++step) {
    std::map<std::string, double> line = {{"step", step}, {"train/loss", 1}};
    if (step % 10 == 0) line["eval/reward_mean"] = step;
    if (step == 10) line["eval/failed"] = 1;
    history.Add(line);
  }
  const History rest = history.Without("eval/", 20);
  EXPECT_EQ(rest.First("eval/reward_mean")->x, 30);
  EXPECT_EQ(rest.Count("eval/reward_mean"), 2u);
  EXPECT_EQ(rest.Sum("eval/reward_mean"), 70);
  EXPECT_EQ(rest.Count("eval/failed"), 0u);
  EXPECT_EQ(rest.Count("train/loss"), 41u);
  EXPECT_EQ(rest.last_step(), 40);
}

}  // namespace
}  // namespace oxbow::io
