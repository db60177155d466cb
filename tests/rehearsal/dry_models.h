// SPDX-License-Identifier: Apache-2.0
// Published networks and the sizes of what they draw, for dry runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/model/architecture.h"

namespace oxbow::rehearsal {

struct DryModel {
  std::string name;  // "sd35m"
  std::shared_ptr<const model::Architecture> architecture;
  std::vector<int64_t> latent;  // One image of 512 x 512, or of a video: [C, H, W], [C, F, H, W].
  int64_t prompt_tokens = 0;
  std::vector<std::string> lora_targets;
  int64_t rows = 0;        // That its recipes take through the network at a time.
  bool in_full = false;    // Guided and full fine-tuning as well.
  bool in_int8 = false;    // Its base in int8 as well.
  bool in_pieces = false;  // Full fine-tuning by eight ranks with sharded gradients as well.
  bool long_clip = false;  // A guided LoRA's step alone.
  bool offloaded = false;  // The same with its weights in host memory.
  std::vector<int> ranks;  // Steps of so many ranks as well.
};

// Every network of models/graphs that draws.
std::vector<std::shared_ptr<const DryModel>> DryModels();

}  // namespace oxbow::rehearsal
