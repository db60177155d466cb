// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "run/run_record.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::run {
namespace {

TEST(StartRecordTest, StartsReadBackInOrderAndDamageIsLeftOut) {
  const testing::ScopedDirectory run;
  EXPECT_TRUE(ReadStarts(run.path()).empty());
  const absl::Time time = absl::FromUnixSeconds(1'795'443'602);
  ASSERT_TRUE(
      AppendStart(run.path(), {time, "oxbow train 'a b.yaml'", "digits", "0.1", "box"}).ok());
  std::ofstream(run.path() / "starts.jsonl", std::ios::app) << "{\"time\":\n[]\n{}\n";
  ASSERT_TRUE(AppendStart(run.path(), {.time = time, .resumed = true}).ok());
  const std::vector<StartRecord> starts = ReadStarts(run.path());
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0].time, time);
  EXPECT_EQ(starts[0].command, "oxbow train 'a b.yaml'");
  EXPECT_EQ(starts[0].recipe, "digits");
  EXPECT_FALSE(starts[0].resumed);
  EXPECT_TRUE(starts[1].resumed);
}

TEST(QuotedTest, AShellReadsBackTheWord) {
  EXPECT_EQ(Quoted("runs/digits"), "runs/digits");
  EXPECT_EQ(Quoted("runs/späß 1"), "'runs/späß 1'");
  EXPECT_EQ(Quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(Quoted(""), "''");
}

TEST(ThisCommandTest, NamesTheProgramWithoutItsPath) {
  EXPECT_EQ(ThisCommand().substr(0, 8), "run_test");
}

TEST(StartRecordTest, ARunGoesOnWhereItLies) {
  EXPECT_EQ(CommandToGoOn("", "runs/b"), "oxbow resume runs/b");
  EXPECT_EQ(
      CommandToGoOn("oxbow train a.yaml --set run.steps=9 --from runs/c --overwrite", "r/b c"),
      "oxbow resume 'r/b c'");
  EXPECT_EQ(CommandToGoOn("oxbow train --listen box:7070 a.yaml --tls-ca=ca.pem --plaintext "
                          "--tls-key 'my key' --no-progress",
                          "runs/b"),
            "oxbow resume runs/b --listen box:7070 --tls-ca=ca.pem --plaintext --tls-key 'my key'");
  EXPECT_EQ(CommandToGoOn("oxbow resume runs/a --listen box:7070", "runs/b"),
            "oxbow resume runs/b --listen box:7070");
}

TEST(StartRecordTest, ARunOfAnotherProgramGoesOnWithoutWhatSaysHowItBegan) {
  EXPECT_EQ(CommandToGoOn("oxbow-ray a.yaml --from " + Quoted("runs/an old one") + " --overwrite",
                          "runs/a"),
            "oxbow-ray a.yaml --resume");
  EXPECT_EQ(CommandToGoOn("oxbow-ray a.yaml --resume --set " + Quoted("run.name=it's --from x"),
                          "runs/a"),
            "oxbow-ray a.yaml --set " + Quoted("run.name=it's --from x") + " --resume");
}

}  // namespace
}  // namespace oxbow::run
