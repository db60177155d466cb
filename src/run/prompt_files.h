// SPDX-License-Identifier: Apache-2.0
// Prompt files as Flow-GRPO and Flow-Factory publish them, read unchanged.
//
//   FILE.jsonl   one JSON object per line: "prompt" is the text, the whole object its metadata,
//                which rewards get (GenEval's tag, include, exclude)
//   other file   one prompt per line
//   directory    the first of SPLIT.jsonl, SPLIT_metadata.jsonl and SPLIT.txt that is there, where
//                SPLIT is train or test
//
// White space around a line and blank lines do not count. Two lines with the same text and metadata
// are one prompt: its id is their hash. The same text with other metadata is another prompt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "oxbow/v1/common.pb.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

enum class PromptSplit { kTrain, kHeldOut };

struct PromptLimits {
  uint64_t line_bytes_max = uint64_t{1} << 20;
  uint64_t bytes_max = uint64_t{1} << 30;  // Texts and metadata together.
  bool keep_repeats = false;               // A benchmark counts a prompt as often as it is there.
};

// The file that `path` stands for: itself, or that of `split` if it is a directory. kNotFound if a
// directory has none.
absl::StatusOr<std::filesystem::path> PromptFile(const std::filesystem::path& path,
                                                 PromptSplit split);

// Reads prompts, each once unless repeats are kept, in the file's order. kNotFound without the
// file; kInvalidArgument "FILE:LINE: ..." for a line that is no prompt or beyond `limits`, and if
// there is none at all.
absl::StatusOr<std::vector<v1::Prompt>> ReadPrompts(const std::filesystem::path& path,
                                                    PromptSplit split,
                                                    const PromptLimits& limits = {});

// A hash of prompts in their order: of their ids.
std::string DigestOfPrompts(const std::vector<v1::Prompt>& prompts);

// Counts prompts with a "negative_prompt" of their own that is not empty. A run has one for all.
size_t CountNegativePrompts(const std::vector<v1::Prompt>& prompts);

// Whether a run encodes later prompts while it trains, so that its text encoders stay: where they
// are on the CPU, in the way of no GPU, and one rank keeps what they say on its disk.
inline bool EncodesBesideTraining(const v1::RunConfig& config) {
  return config.learner().ranks() <= 1 && config.model().encoder_device() == "cpu" &&
         !config.prompts().cache().empty();
}

}  // namespace oxbow::run
