// SPDX-License-Identifier: Apache-2.0
// Small text encoders, one implementation per text side.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "tasks/pretraining/networks.h"

namespace oxbow::tasks {

// The task's CLIP alone: as many features per token as for the whole prompt.
absl::StatusOr<std::unique_ptr<PretrainedText>> MakeSingleClipText(
    const model::Architecture& transformer, const TaskTensors& task);

// A CLIP without projection for the whole prompt, and a T5 of two layers for its tokens.
absl::StatusOr<std::unique_ptr<PretrainedText>> MakeFluxText(const model::Architecture& transformer,
                                                             const TaskTensors& task);

// A UMT5 of two layers.
absl::StatusOr<std::unique_ptr<PretrainedText>> MakeWanText(const model::Architecture& transformer,
                                                            const TaskTensors& task);

}  // namespace oxbow::tasks
