// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cli/replay/replay_source.h"

namespace oxbow::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Pages of one entry each, as a buffer would give them.
class FakeSource final : public ReplaySource {
 public:
  explicit FakeSource(bool live) : live_(live) {}

  v1::VerifiedEntry& Add(uint64_t id, uint64_t prompt) {
    v1::VerifiedEntry& entry = entries_.emplace_back();
    entry.set_entry_id(id);
    entry.set_prompt_id(prompt);
    entry.set_table("best");
    entry.set_stored_bytes(10);
    present_.insert(id);
    return entry;
  }
  // Gone since it was checked.
  void Remove(uint64_t id) { present_.erase(id); }

  std::string name() const override { return "fake"; }
  bool live() const override { return live_; }
  absl::StatusOr<v1::InfoResponse> Info() override { return v1::InfoResponse(); }
  absl::StatusOr<std::vector<v1::ReplayEntry>> Page(const std::string&, EntryId after) override {
    std::vector<v1::ReplayEntry> page;
    if (const auto at = present_.upper_bound(after.value); at != present_.end()) {
      page.emplace_back().set_entry_id(*at);
    }
    return page;
  }
  absl::StatusOr<v1::ReplayEntry> Read(EntryId) override {
    return absl::UnimplementedError("not here");
  }
  absl::StatusOr<v1::ReplayEntry> ReadPicture(EntryId id) override { return Read(id); }
  absl::StatusOr<v1::VerifyResponse> Verify(const std::string& cursor) override {
    v1::VerifyResponse page;
    const size_t at = cursor.empty() ? 0 : std::stoul(cursor);
    if (at < entries_.size()) *page.add_entries() = entries_[at];
    if (at + 1 < entries_.size()) page.set_next_cursor(std::to_string(at + 1));
    return page;
  }

 private:
  const bool live_;
  std::vector<v1::VerifiedEntry> entries_;
  std::set<uint64_t> present_;
};

std::vector<std::string> Found(const ReplayAudit& audit) {
  std::vector<std::string> found;
  for (const ReplayFinding& finding : audit.findings) {
    found.push_back(std::to_string(finding.entry) + ": " + finding.problem);
  }
  return found;
}

TEST(ReplayAuditTest, ReadsAllPagesAndGathersWhatIsWrong) {
  FakeSource source(false);
  source.Add(1, 11);
  source.Add(2, 12).add_problems("latent 1 is missing");
  source.Add(3, 0).add_problems("record is damaged");
  const ReplayAudit audit = AuditReplay(source).value();
  EXPECT_EQ(audit.entries, 3u);
  EXPECT_EQ(audit.bytes, 30u);
  EXPECT_EQ(audit.damaged, 2u);
  EXPECT_THAT(Found(audit), ElementsAre("2: latent 1 is missing", "3: record is damaged"));
  EXPECT_THAT(AuditText(audit, "fake"), HasSubstr("entry 2 (best): latent 1 is missing\n"));
  EXPECT_THAT(AuditJson(audit, "fake"), HasSubstr("\"sound\": false"));
}

// Promise: Verification names the damage.
TEST(ReplayAuditTest, SecondLiveEntryOfAPromptIsFound) {
  FakeSource source(false);
  source.Add(1, 11);
  source.Add(5, 11);
  EXPECT_THAT(Found(AuditReplay(source).value()),
              ElementsAre("5: second live entry of the prompt of entry 1"));
}

TEST(ReplayAuditTest, RetiredEntriesAndQueuesMayShareAPrompt) {
  FakeSource source(false);
  source.Add(1, 11).set_retired(true);
  source.Add(5, 11);
  source.Add(6, 11).set_table("recent_groups");
  EXPECT_TRUE(AuditReplay(source).value().sound());
}

TEST(ReplayAuditTest, EntryThatWasReplacedBetweenTwoPagesIsNoFinding) {
  FakeSource source(true);
  source.Add(1, 11);
  source.Add(5, 11);
  EXPECT_THAT(AuditReplay(source).value().findings, SizeIs(1)) << "both are live";
  source.Remove(1);
  EXPECT_THAT(AuditReplay(source).value().findings, IsEmpty());
}

TEST(ReplayAuditTest, FindingsAreBoundedAndTheirNumberIsTold) {
  FakeSource source(false);
  for (uint64_t id = 1; id <= 10; ++id) source.Add(id, id).add_problems("bad");
  const ReplayAudit audit = AuditReplay(source, 3).value();
  EXPECT_THAT(audit.findings, SizeIs(3));
  EXPECT_EQ(audit.damaged, 10u);
}

}  // namespace
}  // namespace oxbow::cli
