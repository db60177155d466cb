// SPDX-License-Identifier: Apache-2.0
// Warnings about prompts, before a person looks at their images: words that an embedded model
// was not trained on, and prompts without words.
#pragma once

#include <string>
#include <vector>

#include "cli/model/drawn_images.h"

namespace oxbow::cli {

// Whole sentences; none for a model whose tokenizer has a large vocabulary, or is of another kind.
std::vector<std::string> PromptWarnings(const ModelSource& source,
                                        const std::vector<std::string>& prompts);

}  // namespace oxbow::cli
