// SPDX-License-Identifier: Apache-2.0
// Checks whether a run kept its promises, from what it left after its faults.
//
// Each function checks one promise of docs/guarantees.md and returns its violations, one sentence
// each that names the step, group or entry; nothing if the promise held. Pure.
//
// The *committed history* of a run is what it trained in the end. It follows from the rows of
// steps.jsonl in the file's order: a row of step s removes every earlier row of step s or later,
// because the learner that wrote it had resumed from a checkpoint of at most s steps. Removed rows
// count as never trained, and their groups may be trained again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/chaos/evidence.h"

namespace oxbow::chaos {

using Violations = std::vector<std::string>;

// Adds a violation for each row that cannot follow the rows before it.
std::vector<StepRow> CommittedHistory(const Evidence& evidence, Violations& violations);

// 1: every offer that the learner saw answered INSERTED or REPLACED, since the buffer's last
// restore, is there at the end, complete, unless a better one displaced it.
Violations CheckOffersSurvive(const Evidence& evidence);

// 2: at every answer, and at the end, at most one entry per prompt and at most `capacity`.
Violations CheckOneEntryPerPrompt(const Evidence& evidence);

// 3: in committed history each group and each lease is trained once, by the epoch that granted it,
// and never more than `staleness_max` steps after its weights.
Violations CheckTrainedOnce(const Evidence& evidence);

// 4: losses, rewards and final weights equal those of an undisturbed run of the same config, bit
// for bit. Only for deterministic runs.
Violations CheckEqualsUndisturbed(const Evidence& evidence, const Evidence& undisturbed);

// 5: the run ended by itself with exit code 0; every step was trained and checkpointed, and was
// reported, except the last line of a learner that died.
Violations CheckEndedWhole(const Evidence& evidence);

// 6: a worker applied only weights that the learner published, with the same hash, and sampled only
// with weights that it had applied.
Violations CheckWeightsVerified(const Evidence& evidence);

// 7: the peak memory of each kind of process, without pages of files, is under its limit.
Violations CheckMemory(const Evidence& evidence);

// 8: prompts of the committed history are in the order of the run's seed, and versions and
// staleness continue as if the run had never stopped.
Violations CheckOrderAndCounters(const Evidence& evidence);

// 9: a second `oxbow train` on the directory of a run that lives ends with exit code 3, says that
// the run is live, and sets nothing aside. That it harmed nothing else is what the others check.
Violations CheckSecondStarts(const Evidence& evidence);

// 10: no start of the learner continued from a damaged checkpoint.
Violations CheckDamagedNotLoaded(const Evidence& evidence);

// 11: the run ended before it was whole only for a reason that its faults gave, with the exit code
// and the words of docs/formats.md. A drain lost no step.
Violations CheckEarlyEnds(const Evidence& evidence);

// The limits of promise 7, in bytes, by kind of process. A process that links LibTorch may have
// `libtorch_bytes` more: loading alone takes 60 MB with the build for CPUs, and three times that
// with the build for GPUs.
std::map<std::string, uint64_t> ResidentBytesMax(uint64_t libtorch_bytes);

}  // namespace oxbow::chaos
