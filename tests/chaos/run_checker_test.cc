// SPDX-License-Identifier: Apache-2.0
// The checker accepts a run that keeps the promises, and reports each planted fault by name.
#include "tests/chaos/run_checker.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/learner/plan/prompt_order.h"

namespace oxbow::chaos {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kGroups = 2;
constexpr uint64_t kUpdates = 2;
constexpr uint64_t kSteps = 4;

uint64_t Lease(uint64_t epoch, uint64_t number) { return (epoch << 32) + number; }

Event Said(const std::string& name, std::map<std::string, std::string> fields) {
  fields["event"] = name;
  return fields;
}

Event Answered(uint64_t entry, uint64_t prompt, const std::string& outcome, uint64_t replaced = 0) {
  return Said("offer answered", {{"entry", std::to_string(entry)},
                                 {"step", std::to_string(entry)},
                                 {"prompt", std::to_string(prompt)},
                                 {"outcome", outcome},
                                 {"replaced", std::to_string(replaced)}});
}

Event Restored(const std::string& checkpoint) {
  return Said("replay buffer restored", {{"checkpoint", checkpoint}});
}

Event Kept(const std::string& checkpoint) {
  return Said("replay buffer keeps a checkpoint", {{"checkpoint", checkpoint}});
}

Event OfWeights(const std::string& verb, uint64_t epoch, uint64_t version) {
  return Said("weights " + verb, {{"epoch", std::to_string(epoch)},
                                  {"policy_version", std::to_string(version)},
                                  {"sha256", "hash" + std::to_string(version)}});
}

StepRow Row(uint64_t epoch, uint64_t step) {
  StepRow row{.epoch = epoch, .step = step, .version = step * kUpdates, .groups = {}};
  for (uint64_t i = 0; i < kGroups; ++i) {
    row.groups.push_back({.group = step * kGroups + i,
                          .attempt = 1,
                          .lease = Lease(epoch, step * kGroups + i),
                          .prompt = 0,
                          .version = step * kUpdates,
                          .entry = std::nullopt,
                          .worker = "worker"});
  }
  return row;
}

void TakePrompts(Evidence& evidence) {
  std::vector<v1::Prompt> prompts(evidence.facts.prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) prompts[i].set_id(evidence.facts.prompts[i]);
  std::map<uint64_t, learner::PromptPosition> before;
  for (StepRow& row : evidence.step_log) {
    learner::PromptOrder order(prompts, evidence.facts.seed, before[row.step]);
    std::set<uint64_t> taken;
    for (TrainedGroup& group : row.groups) group.prompt = order.TakeNext(taken).id();
    before[row.step + 1] = order.position();
  }
}

// A run of four steps whose learner died after step 2 and resumed from the checkpoint of two steps.
Evidence Kept() {
  Evidence evidence;
  evidence.facts = {.seed = 5,
                    .steps = kSteps,
                    .groups = kGroups,
                    .updates = kUpdates,
                    .staleness_max = 1,
                    .capacity = 3,
                    .prompts = {11, 12, 13, 14, 15}};
  evidence.exit_code = 0;
  evidence.epochs = 2;
  evidence.step_log = {Row(1, 0), Row(1, 1), Row(1, 2), Row(2, 2), Row(2, 3)};
  evidence.step_log[1].groups[1].version = 0;  // One step stale.
  TakePrompts(evidence);
  for (int64_t step = 0; step <= static_cast<int64_t>(kSteps); ++step) {
    if (step > 0) evidence.metrics[step]["train/loss"] = 0.1 * static_cast<double>(step);
  }
  evidence.metrics[2]["rollout/staleness_max"] = 1;
  evidence.checkpoint_steps = kSteps;
  evidence.checkpoint_version = kSteps * kUpdates;
  evidence.weights = {{"model", "abc"}};
  evidence.libtorch_bytes = 60'000'000;
  for (const auto& [kind, bytes] : ResidentBytesMax(evidence.libtorch_bytes)) {
    evidence.resident_peaks[kind] = bytes;
  }
  evidence.logs["learner"] = {Restored(""),
                              Answered(1, 11, "inserted"),
                              Answered(2, 12, "inserted"),
                              Kept("step_2"),
                              Answered(3, 12, "replaced", 2),
                              Restored("step_2"),
                              Answered(4, 13, "inserted"),
                              Answered(5, 11, "replaced", 1),
                              Answered(6, 11, "rejected_lower")};
  evidence.buffer = {{2, 12}, {4, 13}, {5, 11}};
  evidence.second_starts = {{"--overwrite", 3, "oxbow train: the run is live: oxbow train"}};
  // Step 2 was done in epoch 1; epoch 2 continued from the checkpoint before the damaged one.
  evidence.damaged_checkpoints = {{.steps = 3, .epoch = 1}};
  evidence.facts.ends = {{4, {"every checkpoint is damaged", "images cannot be scored"}}};
  evidence.early_ends = {{4, "oxbow train: images cannot be scored: 16 of 16"}};
  for (const StepRow& row : evidence.step_log) {
    evidence.logs["learner"].push_back(OfWeights("published", row.epoch, row.version));
    evidence.logs["worker"].push_back(OfWeights("applied", row.epoch, row.version));
  }
  return evidence;
}

TEST(RunCheckerTest, EvidenceThatKeepsThePromisesPasses) {
  const Evidence evidence = Kept();
  EXPECT_THAT(CheckOffersSurvive(evidence), IsEmpty());
  EXPECT_THAT(CheckOneEntryPerPrompt(evidence), IsEmpty());
  EXPECT_THAT(CheckTrainedOnce(evidence), IsEmpty());
  EXPECT_THAT(CheckEqualsUndisturbed(evidence, Kept()), IsEmpty());
  EXPECT_THAT(CheckEndedWhole(evidence), IsEmpty());
  EXPECT_THAT(CheckWeightsVerified(evidence), IsEmpty());
  EXPECT_THAT(CheckMemory(evidence), IsEmpty());
  EXPECT_THAT(CheckOrderAndCounters(evidence), IsEmpty());
  EXPECT_THAT(CheckSecondStarts(evidence), IsEmpty());
  EXPECT_THAT(CheckDamagedNotLoaded(evidence), IsEmpty());
  EXPECT_THAT(CheckEarlyEnds(evidence), IsEmpty());
}

struct Planted {
  const char* name;
  std::function<void(Evidence&)> plant;
  Violations (*check)(const Evidence&);
  const char* report;
};

std::vector<Event>& Learner(Evidence& evidence) { return evidence.logs["learner"]; }

Violations CheckAgainstKept(const Evidence& evidence) {
  return CheckEqualsUndisturbed(evidence, Kept());
}

const Planted kPlanted[] = {
    {"LostOffer", [](Evidence& e) { e.buffer.erase(e.buffer.begin() + 1); }, CheckOffersSurvive,
     "entry 4 of prompt 13 was acknowledged and is not in the buffer"},
    {"OfferOfAPastThatWasTakenBackIsThereInPlaceOfTheOneThatCounts",
     [](Evidence& e) { e.buffer[0].id = 3; }, CheckOffersSurvive, "entry 2 of prompt 12"},
    {"TornEntry", [](Evidence& e) { e.buffer[2].whole = false; }, CheckOffersSurvive,
     "entry 5 was acknowledged and cannot be read"},
    {"TwoEntriesOfAPrompt", [](Evidence& e) { e.buffer[1].prompt = 11; }, CheckOneEntryPerPrompt,
     "entries 4 and 5 of prompt 11 both live"},
    {"TwoEntriesOfAPromptForAMoment",
     [](Evidence& e) { Learner(e).insert(Learner(e).begin() + 8, Answered(9, 13, "inserted")); },
     CheckOneEntryPerPrompt, "entry 9 of prompt 13 was inserted while entry 4"},
    {"TooManyEntries",
     [](Evidence& e) {
       e.buffer.push_back({7, 15});
     },
     CheckOneEntryPerPrompt, "the buffer of 3 holds 4 entries"},
    {"TooManyEntriesForAMoment",
     [](Evidence& e) { Learner(e).insert(Learner(e).begin() + 8, Answered(9, 14, "inserted")); },
     CheckOneEntryPerPrompt, "entry 9 was inserted as number 4 of a buffer of 3"},
    {"VictimThatWasGone", [](Evidence& e) { Learner(e).push_back(Answered(9, 14, "replaced", 1)); },
     CheckOneEntryPerPrompt, "entry 9 displaced entry 1, which was gone before"},
    // A buffer without a checkpoint keeps what was born before the step; one call may be unknown.
    {"EmptiedWithoutACheckpoint",
     [](Evidence& e) {
       Event rewound = Restored("");
       rewound["step"] = "9";
       Learner(e).push_back(rewound);
       e.buffer.clear();
     },
     CheckOffersSurvive, "was acknowledged and is not in the buffer"},
    {"UnknownCheckpoint", [](Evidence& e) { Learner(e).push_back(Restored("step_9")); },
     CheckOneEntryPerPrompt, "never kept: step_9"},
    {"GroupTrainedTwice", [](Evidence& e) { e.step_log[4].groups[1].group = 6; }, CheckTrainedOnce,
     "step 3 (epoch 2), group 6: was trained by step 3"},
    {"LeaseUsedTwice",
     [](Evidence& e) { e.step_log[4].groups[0].lease = e.step_log[3].groups[0].lease; },
     CheckTrainedOnce, "was used by step 2"},
    {"LateResultOfAnEarlierEpoch",
     [](Evidence& e) { e.step_log[3].groups[0].lease = Lease(1, 99); }, CheckTrainedOnce,
     "step 2 (epoch 2), group 4: lease 4294967395 is of another epoch"},
    {"GroupOfAnotherStep", [](Evidence& e) { e.step_log[4].groups[1].group = 9; }, CheckTrainedOnce,
     "group 9: is of another step"},
    {"TooStale", [](Evidence& e) { e.step_log[4].groups[1].version = 2; }, CheckTrainedOnce,
     "group 7: made with the weights after 1 steps, staleness at most 1"},
    {"StepTrainedTwiceByOneEpoch", [](Evidence& e) { e.step_log.push_back(Row(2, 3)); },
     CheckTrainedOnce, "step 3 (epoch 2) was trained twice by one epoch"},
    {"GapInHistory", [](Evidence& e) { e.step_log.erase(e.step_log.begin() + 1); },
     CheckTrainedOnce, "step 2 (epoch 1) follows step 1 - 1"},
    {"EpochThatWasFenced", [](Evidence& e) { e.step_log[4].epoch = 1; }, CheckTrainedOnce,
     "step 3 (epoch 1) was written after a row of epoch 2"},
    {"OtherLoss", [](Evidence& e) { e.metrics[3]["train/loss"] += 1e-16; }, CheckAgainstKept,
     "step 2: train/loss is 0.3"},
    {"OtherWeights", [](Evidence& e) { e.weights["model"] = "abd"; }, CheckAgainstKept,
     "weights/model has other bytes"},
    {"OtherHead", [](Evidence& e) { e.step_log[3].groups[0].entry = 4; }, CheckAgainstKept,
     "step 2 (epoch 2), group 4"},
    {"DidNotEnd", [](Evidence& e) { e.exit_code.reset(); }, CheckEndedWhole,
     "the run did not end in time"},
    {"EndedBadly", [](Evidence& e) { e.exit_code = 3; }, CheckEndedWhole, "exit code 3"},
    {"LastStepMissing", [](Evidence& e) { e.step_log.pop_back(); }, CheckEndedWhole,
     "steps trained: 3 of 4"},
    {"HalfAStep", [](Evidence& e) { e.step_log[4].groups.pop_back(); }, CheckEndedWhole,
     "step 3 (epoch 2) trained 1 groups of 2"},
    {"NoLastCheckpoint", [](Evidence& e) { e.checkpoint_steps = 2; }, CheckEndedWhole,
     "the newest checkpoint is of step 2"},
    {"LineOfMetricsMissing", [](Evidence& e) { e.metrics.erase(3); }, CheckEndedWhole,
     "metrics.jsonl has no line of step 3"},
    {"TornStepLog", [](Evidence& e) { e.damage.push_back("steps.jsonl:3: not a step"); },
     CheckEndedWhole, "steps.jsonl:3"},
    {"WeightsNobodyPublished",
     [](Evidence& e) { e.logs["worker"].push_back(OfWeights("applied", 2, 5)); },
     CheckWeightsVerified, "worker applied version 5 of epoch 2, which was never published"},
    {"WeightsOfAnotherHash", [](Evidence& e) { e.logs["worker"][4]["sha256"] = "hash0"; },
     CheckWeightsVerified, "worker applied version 6 of epoch 2 with another hash"},
    {"WeightsNeverApplied", [](Evidence& e) { e.logs["worker"].pop_back(); }, CheckWeightsVerified,
     "step 3 (epoch 2), group 6: worker sampled with version 6, which it never applied"},
    {"TooMuchMemory", [](Evidence& e) { e.resident_peaks["replay_buffer"] += 1'000'000; },
     CheckMemory, "replay_buffer had 151 MB resident, at most 150"},
    {"TooMuchMemoryBesideLibTorch", [](Evidence& e) { e.libtorch_bytes -= 1'000'000; }, CheckMemory,
     "learner had 700 MB resident, at most 699"},
    {"MemoryNeverSeen", [](Evidence& e) { e.resident_peaks.erase("learner"); }, CheckMemory,
     "the memory of learner was never seen"},
    {"OrderOfPromptsBrokenByTheResume",
     [](Evidence& e) { std::swap(e.step_log[3].groups[0].prompt, e.step_log[3].groups[1].prompt); },
     CheckOrderAndCounters, "step 2 (epoch 2), group 4: prompt"},
    {"VersionsThatDoNotCountOn", [](Evidence& e) { e.step_log[3].version = 6; },
     CheckOrderAndCounters, "step 2 (epoch 2): version 6, expected 4"},
    {"StalenessThatIsNotReported", [](Evidence& e) { e.metrics[2]["rollout/staleness_max"] = 0; },
     CheckOrderAndCounters, "step 1 (epoch 1): staleness 1, reported 0"},
    {"SecondSupervisorThatWentOn", [](Evidence& e) { e.second_starts[0].exit_code = 0; },
     CheckSecondStarts, "with --overwrite on the live run ended with exit code 0"},
    {"SecondSupervisorThatStayed", [](Evidence& e) { e.second_starts[0].exit_code.reset(); },
     CheckSecondStarts, "on the live run did not end"},
    {"SecondSupervisorWithoutAReason", [](Evidence& e) { e.second_starts[0].said = "no"; },
     CheckSecondStarts, "did not say why it ended: no"},
    {"RunThatWasSetAside", [](Evidence& e) { e.neighbours = {"run.1"}; }, CheckSecondStarts,
     "beside the run's directory there is run.1"},
    {"DamagedCheckpointLoaded", [](Evidence& e) { e.damaged_checkpoints[0].steps = 2; },
     CheckDamagedNotLoaded, "epoch 2 continued from step 2, whose checkpoint was damaged"},
    {"EarlyEndOfAnotherCode", [](Evidence& e) { e.early_ends[0].exit_code = 1; }, CheckEarlyEnds,
     "the run ended early with exit code 1: oxbow train: images"},
    {"EarlyEndInOtherWords", [](Evidence& e) { e.early_ends[0].said = "terminated"; },
     CheckEarlyEnds, "the run ended early with exit code 4: terminated"},
    {"EarlyEndWithoutAReason", [](Evidence& e) { e.facts.ends.clear(); }, CheckEarlyEnds,
     "the run ended early with exit code 4"},
    {"DrainThatLostAStep",
     [](Evidence& e) {
       e.facts.ends[9] = {"drained"};
       e.early_ends.push_back({9, "drained at step 3 of 4", 3, 2});
     },
     CheckEarlyEnds, "drained at step 3, and the newest checkpoint is of step 2"},
    {"StepTrainedAgainAfterADrain", [](Evidence& e) { e.facts.drained_alone = true; },
     CheckEarlyEnds, "step 2 (epoch 2) was trained again after a drain"},
    {"DrainThatWasTakenForTheEnd", [](Evidence& e) { e.step_log.pop_back(); }, CheckEndedWhole,
     "steps trained: 3 of 4"},
    {"CheckpointOfAnotherVersion", [](Evidence& e) { e.checkpoint_version = 7; },
     CheckOrderAndCounters, "the checkpoint of step 4 has version 7"},
};

class PlantedViolationTest : public ::testing::TestWithParam<Planted> {};
INSTANTIATE_TEST_SUITE_P(Of, PlantedViolationTest, ::testing::ValuesIn(kPlanted),
                         [](const auto& info) { return info.param.name; });

// Promise: Runs under random faults keep the promises.
TEST_P(PlantedViolationTest, IsReported) {
  Evidence evidence = Kept();
  GetParam().plant(evidence);
  const Violations violations = GetParam().check(evidence);
  ASSERT_FALSE(violations.empty());
  EXPECT_THAT(violations.front(), HasSubstr(GetParam().report));
}

// The loss that a crash may cause, and what a lost answer leaves unknown.
TEST(RunCheckerTest, WhatIsNotPromisedIsNoViolation) {
  Evidence evidence = Kept();
  evidence.metrics.erase(2);  // The learner continued at step 2.
  EXPECT_THAT(CheckEndedWhole(evidence), IsEmpty());
  Learner(evidence).push_back(Answered(8, 12, "duplicate"));  // Never acknowledged before.
  evidence.buffer[0].id = 8;
  EXPECT_THAT(CheckOffersSurvive(evidence), IsEmpty()) << "it displaced entry 2";
  evidence.buffer[0].id = 2;
  EXPECT_THAT(CheckOffersSurvive(evidence), IsEmpty()) << "it was rejected";
  Learner(evidence).push_back(Answered(4, 13, "duplicate"));
  evidence.buffer.erase(evidence.buffer.begin() + 1);
  EXPECT_THAT(CheckOffersSurvive(evidence), ElementsAre(HasSubstr("entry 4"))) << "known before";
}

TEST(RunCheckerTest, ACommitWithoutAnAnswerMayHaveDisplacedAnEntry) {
  for (const std::string call : {"commit", "draw"}) {
    Evidence evidence = Kept();
    Learner(evidence).push_back(
        Said("replay buffer is away, training goes on without it", {{"call", call}}));
    evidence.buffer.erase(evidence.buffer.begin());
    EXPECT_EQ(CheckOffersSurvive(evidence).empty(), call == "commit") << call;
  }
}

// An entry that one shard forgets, the other does not; each has its share of the capacity.
// Promise: Runs under random faults keep the promises.
TEST(RunCheckerTest, EachShardHasABookOfItsOwn) {
  const auto at = [](const char* shard, Event event) {
    event["shard"] = shard;
    return event;
  };
  Evidence evidence;
  evidence.facts.capacity = 3;
  evidence.facts.shards = 2;
  Learner(evidence) = {at("0", Restored("")),
                       at("1", Restored("")),
                       at("0", Answered(1, 12, "inserted")),
                       at("1", Answered(2, 11, "inserted")),
                       Kept("a"),
                       at("0", Answered(3, 14, "inserted")),
                       at("1", Answered(4, 13, "inserted")),
                       at("1", Restored("a"))};
  evidence.buffer = {{1, 12, true}, {2, 11, true}, {3, 14, true}};
  EXPECT_THAT(CheckOffersSurvive(evidence), IsEmpty());
  EXPECT_THAT(CheckOneEntryPerPrompt(evidence), IsEmpty());
  evidence.buffer.pop_back();
  EXPECT_THAT(CheckOffersSurvive(evidence), ElementsAre(HasSubstr("entry 3 of prompt 14")));
  Learner(evidence).push_back(at("0", Answered(5, 16, "inserted")));
  EXPECT_THAT(CheckOneEntryPerPrompt(evidence),
              ElementsAre(HasSubstr("as number 3 of a buffer of 2")));
}

TEST(RunCheckerTest, ARunWithoutReplayHasNoBuffer) {
  Evidence evidence = Kept();
  evidence.resident_peaks.erase("replay_buffer");
  EXPECT_THAT(CheckMemory(evidence), ElementsAre(HasSubstr("replay_buffer was never seen")));
  evidence.facts.shards = 0;
  EXPECT_THAT(CheckMemory(evidence), IsEmpty());
}

TEST(RunCheckerTest, AHeadThatCouldNotBeHadLeavesItsPrompt) {
  Evidence evidence = Kept();
  StepRow& row = evidence.step_log.back();
  const uint64_t first = row.groups[0].prompt;
  row.groups[1].prompt = first;
  row.groups[0].prompt = 99;  // A prompt of an entry; the next in order goes elsewhere.
  EXPECT_FALSE(CheckOrderAndCounters(evidence).empty());
  Learner(evidence).push_back(Said("group goes on without its replayed head", {{"group", "6"}}));
  EXPECT_THAT(CheckOrderAndCounters(evidence), IsEmpty());
}

}  // namespace
}  // namespace oxbow::chaos
