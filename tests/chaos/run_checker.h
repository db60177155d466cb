// Did a run keep its promises? Judged from what it left, after whatever was done to it.
//
// Each function checks one promise of docs/guarantees.md and returns what broke it, one sentence
// each that names the step, group or entry; nothing if it held. Pure.
//
// The *committed history* of a run is what it trained in the end. Rows of steps.jsonl in the file's
// order; a row of step s takes back every earlier row of step s and later, since the learner that
// wrote it had gone back to a checkpoint of at most s steps. What was taken back is as if it had
// never been trained, and may be trained again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/chaos/evidence.h"

namespace oxbow::chaos {

using Violations = std::vector<std::string>;

// Appends a sentence for each row that cannot follow those before it.
std::vector<StepRow> CommittedHistory(const Evidence& evidence, Violations& violations);

// 1: every offer that the learner saw answered INSERTED or REPLACED, in the life of the buffer that
// counts, is there at the end, whole, unless something better displaced it.
Violations CheckOffersSurvive(const Evidence& evidence);

// 2: at every answer, and at the end, at most one entry per prompt and at most `capacity`.
Violations CheckOneEntryPerPrompt(const Evidence& evidence);

// 3: in committed history each group and each lease is trained once, by the epoch that granted it,
// and never more than `staleness_max` steps after its weights.
Violations CheckTrainedOnce(const Evidence& evidence);

// 4: losses, rewards and final weights equal those of a run of the same configuration to which
// nothing happened, bit for bit. Deterministic runs only.
Violations CheckEqualsUndisturbed(const Evidence& evidence, const Evidence& undisturbed);

// 5: the run ended by itself, exit code 0, every step trained, checkpointed and, but for the last
// line of a learner that died, reported.
Violations CheckEndedWhole(const Evidence& evidence);

// 6: a worker applied only weights that the learner published, with the same hash, and sampled
// only with what it had applied.
Violations CheckWeightsVerified(const Evidence& evidence);

// 7: the most memory that each kind of process had resident is under its bound.
Violations CheckMemory(const Evidence& evidence);

// 8: prompts of committed history are in the order of the run's seed, and versions and staleness
// count on, as if the run had never stopped.
Violations CheckOrderAndCounters(const Evidence& evidence);

// Bounds of 7, in bytes, by kind of process.
const std::map<std::string, uint64_t>& ResidentBytesMax();

}  // namespace oxbow::chaos
