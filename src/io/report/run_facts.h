// SPDX-License-Identifier: Apache-2.0
// Facts on a run's page besides its numbers: plain values, which the caller takes from the
// run's config and files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace oxbow::io {

struct RunFacts {
  std::string name;
  // Label and value, in the order of the page's head: {"method", "grpo"}, {"model", ...}.
  std::vector<std::pair<std::string, std::string>> head;
  std::vector<std::string> next_commands;  // Commands that one may run now, as typed.
  bool live = false;                       // The page then loads itself again.
  int64_t written = 0;                     // Now, in seconds since 1970, if live.
  uint64_t steps_total = 0;                // 0: not known.
  uint32_t eval_images = 128;              // Per evaluation.
  // The reward of a picture that is right in full, where such a reward exists.
  std::optional<double> full_reward;
  std::optional<double> reward_min;    // The lowest that the reward can be.
  std::string reward_name = "reward";  // Its terms: "digits_ocr", "0.5 pickscore + ocr".
  std::string evaluation_failure;      // Why the last failed evaluation gave no number; "": none.
  std::string unscored_reason;         // Why samples had no score, last; "": all had one.
  bool replays = false;                // Some groups get a replayed head.
  std::vector<std::string> terms;      // The rewards that are trained on.
  // Observed rewards that describe pictures: more of one is neither better nor worse.
  std::vector<std::string> descriptive;
  // Steps from which on evaluations measure something else, and what: a setting with both values.
  std::vector<std::pair<uint64_t, std::string>> changes = {};
  // The last of them that all numbers of evaluations depend on, as held-out prompts: evaluations up
  // to this step are not to be compared with later ones. 0: all may be.
  uint64_t same_since = 0;
  // Metrics that this run cannot have, in words, each with the reason: {"KL", "kl_weight is 0"}.
  std::vector<std::pair<std::string, std::string>> left_out;
};

}  // namespace oxbow::io
