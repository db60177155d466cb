// SPDX-License-Identifier: Apache-2.0
// The manifest of a step is on disk, complete, before the step has any effect; every start is
// counted.
#include "services/learner/record/step_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/testing/scoped_directory.h"

namespace oxbow::learner {
namespace {

using oxbow::testing::ScopedDirectory;

ReceivedGroup Received(uint64_t group, uint64_t version) {
  ReceivedGroup received;
  received.group.set_group_id(group);
  received.group.set_lease_id(10 * group);
  received.group.set_worker_id("w");
  received.group.mutable_prompt()->set_id(1000 + group);
  received.attempt = 2;
  received.group.add_trajectories()->add_behaviour_version(version);
  return received;
}

TEST(StepLogTest, ManifestNamesWhoMadeWhatWithWhichWeights) {
  const ScopedDirectory directory;
  const std::filesystem::path path = directory.path() / "steps.jsonl";
  absl::StatusOr<StepLog> log = StepLog::Open(path);
  ASSERT_TRUE(log.ok()) << log.status();
  std::vector<ReceivedGroup> groups;
  groups.push_back(Received(56, 12));
  groups.push_back(Received(57, 14));
  v1::Trajectory& replayed = *groups.back().group.add_trajectories();
  replayed.set_replayed(true);
  replayed.set_entry_id(~uint64_t{0});  // More than a double holds.
  ASSERT_TRUE(log->Freeze(Epoch(3), LearnerStep(7), PolicyVersion(14), groups).ok());
  // Read while the log is open: the line is there when Freeze returns.
  EXPECT_EQ(nlohmann::json::parse(ReadFile(path).value()),
            nlohmann::json::parse(R"({"epoch": 3, "step": 7, "version": 14, "groups": [
      {"group": 56, "attempt": 2, "lease": "560", "prompt": "1056", "worker": "w", "version": 12},
      {"group": 57, "attempt": 2, "lease": "570", "prompt": "1057", "worker": "w", "version": 14,
       "entry": "18446744073709551615"}]})"));
}

TEST(StepLogTest, ManifestNamesWhatTheStepChose) {
  const ScopedDirectory directory;
  absl::StatusOr<StepLog> log = StepLog::Open(directory.path() / "steps.jsonl");
  ASSERT_TRUE(log.ok()) << log.status();
  const StepChoice choice{.left_out = {GroupId(56)},
                          .reused = {GroupId(41), GroupId(40)},
                          .whole = {{GroupId(57), EntryId(99)}}};
  std::vector<ReceivedGroup> groups;
  groups.push_back(Received(57, 14));
  ASSERT_TRUE(log->Freeze(Epoch(3), LearnerStep(7), PolicyVersion(14), groups, choice).ok());
  const auto line = nlohmann::json::parse(ReadFile(directory.path() / "steps.jsonl").value());
  EXPECT_EQ(line["left_out"], nlohmann::json({56}));
  EXPECT_EQ(line["reused"], nlohmann::json({41, 40}));
  EXPECT_EQ(line["groups"][0]["entry"], "99") << "a replayed sample that no worker made";
}

TEST(StepLogTest, WhatJoinedAfterSamplingIsNamedApartFromTheGroups) {
  const ScopedDirectory directory;
  absl::StatusOr<StepLog> log = StepLog::Open(directory.path() / "steps.jsonl");
  ASSERT_TRUE(log.ok()) << log.status();
  StepChoice choice;
  choice.late[GroupId(57)] = EntryId(99);
  choice.added = {EntryId(7), EntryId(5)};
  std::vector<ReceivedGroup> groups;
  groups.push_back(Received(57, 14));
  ReceivedGroup beside;
  beside.group.set_group_id(uint64_t{1} << 62);
  groups.push_back(std::move(beside));
  ASSERT_TRUE(log->Freeze(Epoch(3), LearnerStep(7), PolicyVersion(14), groups, choice).ok());
  const auto line = nlohmann::json::parse(ReadFile(directory.path() / "steps.jsonl").value());
  ASSERT_EQ(line["groups"].size(), 1u);
  EXPECT_EQ(line["groups"][0]["late_entry"], "99");
  EXPECT_FALSE(line["groups"][0].contains("entry"));
  EXPECT_EQ(line["added"], nlohmann::json({"7", "5"}));
}

TEST(StepLogTest, ReopeningAddsAndLosesNothing) {
  const ScopedDirectory directory;
  const std::filesystem::path path = directory.path() / "steps.jsonl";
  std::string before;
  for (const uint64_t epoch : {1, 2}) {
    absl::StatusOr<StepLog> log = StepLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE(log->Freeze(Epoch(epoch), LearnerStep(4), PolicyVersion(8), {}).ok());
    const std::string content = ReadFile(path).value();
    ASSERT_EQ(content.substr(0, before.size()), before);
    EXPECT_EQ(nlohmann::json::parse(content.substr(before.size()))["epoch"], epoch);
    before = content;
  }
}

// Promise: One process changes a run's directory.
TEST(StepLogTest, ALineOfAnotherStartsRunIsNotWritten) {
  const ScopedDirectory directory;
  const std::filesystem::path path = directory.path() / "steps.jsonl";
  absl::Status may;
  absl::StatusOr<StepLog> log = StepLog::Open(path, [&] { return may; });
  ASSERT_TRUE(log->Freeze(Epoch(3), LearnerStep(7), PolicyVersion(14), {}).ok());
  const std::string before = ReadFile(path).value();
  may = absl::FailedPreconditionError("taken over");
  EXPECT_EQ(log->Freeze(Epoch(3), LearnerStep(8), PolicyVersion(16), {}), may);
  EXPECT_EQ(ReadFile(path).value(), before);
}

// A full disk leaves such a line; the next one must not be appended to it.
// Promise: Resume continues from the checkpoint.
TEST(StepLogTest, ALineThatWasCutIsTakenAwayWhenTheLogIsOpenedAgain) {
  const ScopedDirectory directory;
  const std::filesystem::path path = directory.path() / "steps.jsonl";
  const std::string whole = "{\"epoch\":1,\"groups\":[],\"step\":0,\"version\":0}\n";
  for (const std::string& before : {std::string(), whole}) {
    ASSERT_TRUE(WriteFileAtomically(path, before + "{\"epoch\":1,\"gro").ok());
    absl::StatusOr<StepLog> log = StepLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE(log->Freeze(Epoch(2), LearnerStep(0), PolicyVersion(0), {}).ok());
    EXPECT_EQ(ReadFile(path).value(),
              before + "{\"epoch\":2,\"groups\":[],\"step\":0,\"version\":0}\n");
  }
}

// Before the last line lies a hole of 5 GiB, which cannot be read in a moment, nor held.
// Promise: Memory is bounded.
TEST(StepLogTest, OpeningALogOfAnySizeReadsItsEndAlone) {
  const ScopedDirectory directory;
  const std::filesystem::path path = directory.path() / "steps.jsonl";
  const uint64_t hole = uint64_t{5} << 30;
  ASSERT_TRUE(WriteFileAtomically(path, "{}\n").ok());
  std::filesystem::resize_file(path, hole);
  ASSERT_TRUE(AppendFile::Open(path)->Append("\n{\"epoch\":1}\n{\"ep", false).ok());
  ASSERT_TRUE(StepLog::Open(path).ok());
  EXPECT_EQ(std::filesystem::file_size(path), hole + 1 + std::string("{\"epoch\":1}\n").size());
}

TEST(EpochTest, AFileThatHoldsNoNumberIsAnErrorAndNotTheFirstStart) {
  const ScopedDirectory directory;
  const std::filesystem::path path = directory.path() / "epoch";
  EXPECT_EQ(NextEpoch(path).value(), Epoch(1));
  EXPECT_EQ(NextEpoch(path).value(), Epoch(2));
  ASSERT_TRUE(WriteFileAtomically(path, "seven\n").ok());
  EXPECT_EQ(NextEpoch(path).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadFile(path).value(), "seven\n");
  ASSERT_TRUE(WriteFileAtomically(path, "18446744073709551615\n").ok());
  EXPECT_EQ(NextEpoch(path).status().code(), absl::StatusCode::kDataLoss) << "no start is left";
}

}  // namespace
}  // namespace oxbow::learner
