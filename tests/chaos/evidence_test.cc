// SPDX-License-Identifier: Apache-2.0
// Files as a crash leaves them: a cut-off last line is ignored; anything else that cannot be read
// is damage.
#include "tests/chaos/evidence.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::chaos {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kRow[] =
    R"({"epoch":1,"groups":[{"attempt":2,"entry":"9","group":4,"lease":"7","prompt":"5",)"
    R"("version":6,"worker":"w"}],"step":2,"version":6})";

Evidence Read(const std::string& step_log) {
  const testing::ScopedDirectory run;
  std::ofstream(run.path() / "steps.jsonl") << step_log;
  return ReadEvidence(run.path());
}

TEST(EvidenceTest, AStepIsReadWhole) {
  const Evidence evidence = Read(std::string(kRow).append("\n"));
  ASSERT_EQ(evidence.step_log.size(), 1u);
  EXPECT_EQ(evidence.step_log[0].epoch, 1u);
  EXPECT_EQ(evidence.step_log[0].step, 2u);
  const TrainedGroup expected{
      .group = 4, .attempt = 2, .lease = 7, .prompt = 5, .version = 6, .entry = 9, .worker = "w"};
  EXPECT_TRUE(evidence.step_log[0].groups[0] == expected);
}

TEST(EvidenceTest, OnlyTheLastLineMayBeCut) {
  const std::string row = kRow;
  const std::string half = row.substr(0, row.size() / 2);
  EXPECT_THAT(Read(row + "\n" + half).damage, Not(Contains(HasSubstr("not a step"))));
  EXPECT_THAT(Read(half + row + "\n").damage, Contains(HasSubstr("steps.jsonl:1: not a step")));
}

TEST(EvidenceTest, WhatIsMissingIsDamage) {
  const Evidence evidence = Read("");
  EXPECT_THAT(evidence.damage, Contains(HasSubstr("checkpoint")));
  EXPECT_THAT(evidence.damage, Contains(HasSubstr("metrics.jsonl")));
}

}  // namespace
}  // namespace oxbow::chaos
