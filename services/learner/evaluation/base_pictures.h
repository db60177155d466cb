// SPDX-License-Identifier: Apache-2.0
// How far held-out pictures are from those of step 0, the base model's, which were drawn from the
// same noise. The small pictures of step 0 are kept over a resume:
//
//   samples/base_1a2b3c4d.png   squares of 32 pixels in rows of 16, in the order of the pictures;
//                               the number is the CRC-32C of their prompts, a line each
//
// Held-out prompts may change at a resume; then there is nothing to compare with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/image8.h"

namespace oxbow::learner {

class BasePictures {
 public:
  explicit BasePictures(std::filesystem::path run_dir) : run_dir_(std::move(run_dir)) {}

  // The mean distance of `small` (SmallPictures, of these prompts) from step 0's, by the mean
  // distance of step 0's to one another: 0 of the same pictures, 1 of unrelated ones. At step 0
  // they are stored first. Nothing without such pictures of step 0, or if all of them are alike.
  std::optional<double> DistanceAt(uint64_t step, const std::vector<std::string>& prompts,
                                   const std::vector<Image8>& small);

 private:
  const std::filesystem::path run_dir_;
  std::string identity_;      // That of `base_`; empty: nothing was looked for.
  std::vector<Image8> base_;  // Empty: there are none of it.
};

}  // namespace oxbow::learner
