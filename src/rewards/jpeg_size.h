// SPDX-License-Identifier: Apache-2.0
// How hard a picture is to compress. DDPO (arXiv:2305.13301) trains on it to show that a policy
// follows its reward: one value fills pictures with detail, the other empties them.
//
//   size (default)     bytes of the JPEG at quality 95 / 1000, flow_grpo's jpeg_incompressibility
//   compressibility    -size / 500, flow_grpo's jpeg_compressibility
//
// At 512 px a size is some 10 to 300. The JPEG is libjpeg's, with Pillow's settings (io/image.h).
// Source: jpeg_incompressibility and jpeg_compressibility in flow_grpo/rewards.py of flow_grpo.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/reward/scorer.h"

namespace oxbow::rewards {

// `variant` is one of the above; empty: size. kInvalidArgument names the known ones.
absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeJpegSize(const std::string& variant);

}  // namespace oxbow::rewards
