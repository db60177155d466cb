// SPDX-License-Identifier: Apache-2.0
// The lines of the verdict, each with its topic.
#pragma once

#include "io/metrics_file.h"
#include "io/report/run_facts.h"
#include "io/report/verdict.h"

namespace oxbow::io {

// Whether the reward rises, and if not, why: scores that are missing come first, then a reward
// that tells no picture from another.
VerdictLine Learning(const History& history, const RunFacts& facts);

// Whether the reward is paid for what people do not want.
VerdictLine Honest(const History& history, const RunFacts& facts);

// Whether the pictures of a prompt still differ.
VerdictLine Diverse(const History& history);

// Whether gradients and held-out rewards are steady.
VerdictLine Stable(const History& history, const RunFacts& facts);

// The phase that takes most of the time, one that had not ended when the run was stopped included.
VerdictLine LimitedBy(const History& history, const RunFacts& facts);

}  // namespace oxbow::io
