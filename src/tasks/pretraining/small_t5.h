// SPDX-License-Identifier: Apache-2.0
// A small T5 or UMT5 as one of the text encoders of a pretrained model.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/architecture.h"
#include "core/model/t5.h"
#include "tasks/pretraining/networks.h"
#include "tasks/pretraining/piece_vocabulary.h"

namespace oxbow::tasks {

// The features that a transformer takes under this name. kInvalidArgument if it takes none.
absl::StatusOr<int64_t> PromptWidth(const model::Architecture& transformer,
                                    const std::string& name);

// Two layers of that width over the pieces. `bias_per_block`: as UMT5.
model::T5Params SmallT5(const PieceVocabulary& vocabulary, int64_t width, bool bias_per_block);

// `component`: its folder, "text_encoder" or "text_encoder_2".
PretrainedEncoder SmallT5Encoder(const std::string& component, const model::T5Params& params,
                                 const PieceVocabulary& vocabulary);

}  // namespace oxbow::tasks
