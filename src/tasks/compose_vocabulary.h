// The words of the task `compose`, each as one token of a CLIP tokenizer.
//
//   begin, 5 or 6 words, end, end ... up to kComposeTokens ids
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/compose.h"

namespace oxbow::tasks {

inline constexpr int kComposeTokens = 8;

// The tokenizer's merges ("t e", "te xt</w>") in order: byte pairs that make each word one token
// and do not change any word before it in ComposeWords().
const std::vector<std::string>& ComposeMerges();

// Ids of begin and end. They follow 256 bytes, the same 256 bytes at the end of a word, and the
// merges.
int64_t ComposeBeginId();
int64_t ComposeEndId();

// Returns kComposeTokens ids.
std::vector<int64_t> ComposeTokenIds(const Scene& scene);

}  // namespace oxbow::tasks
