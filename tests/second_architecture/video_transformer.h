// SPDX-License-Identifier: Apache-2.0
// A second architecture, unlike SD3 in all that an architecture decides: videos [C, F, H, W] as
// latents, no autoencoder, and three conditioning parts: features of the prompt's characters, the
// mask over them and a guidance scale. No trained model of it exists; it shows that a further
// architecture is its own file pair and its rows in tables.cc.
//
//   X = patches(x) Wp + frame table       c = MLP(sincos(1000 sigma)) + scale Wg
//   y = masked mean of (context Wc)       v = unpatch(Wo gelu(Wi LN(X + y + c)))
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/architecture.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"

namespace oxbow::testing {

inline constexpr char kVideoClassName[] = "TestVideoTransformer";
inline constexpr char kFrameTable[] = "frame_table";  // Never trains.

// {"channels": 2, "frames": 3, "side": 4, "width": 16, "context_width": 5}. kInvalidArgument.
absl::StatusOr<std::shared_ptr<const model::Architecture>> ReadVideoArchitecture(
    const std::string& config_json);

// Features of characters, without any file. As TextSide of text_side_table.h.
absl::StatusOr<std::unique_ptr<io::TextEncoders>> OpenVideoTextSide(
    const io::DiffusersComponents& components, const io::TextEncoders::Options& options);
absl::StatusOr<int64_t> VideoPromptTokens(const io::DiffusersComponents& components,
                                          int64_t t5_length);

}  // namespace oxbow::testing
