// SPDX-License-Identifier: Apache-2.0
// From token ids to what a velocity model gets of its prompts.
//
//   one CLIP   tokens = c.tokens                       pooled = c.pooled
//   SD3        tokens = [l.tokens | g.tokens | 0]      pooled = [l.pooled | g.pooled]
//                       [t5.tokens              ]
//   FLUX.1     tokens = t5.tokens                      pooled = c.pooled, c without projection
//   Wan        tokens = t5.tokens, 0 behind the text
//   LTX-Video  tokens = t5.tokens                      mask = where the text is
//
// SD3 (arXiv:2403.03206) sets its two CLIPs side by side, fills them with zeros to T5's width and
// appends T5 over the sequence. Without T5 that part is zeros. One implementation per way of
// composing; tokenisation stays outside, so that this needs no files.
#pragma once

#include <cstdint>

#include "core/model/parameters.h"
#include "core/model/velocity_model.h"

namespace oxbow::model {

// Text encoders' output for prompts, before it is composed: tensors of B rows each. Smaller than
// the composed text, and all that is worth storing.
using EncodedText = NamedTensors;

// The names in an EncodedText.
inline constexpr char kClipTokens[] = "clip.tokens";     // [B, S, D]
inline constexpr char kClipPooled[] = "clip.pooled";     // [B, P]
inline constexpr char kClip2Tokens[] = "clip_2.tokens";  // [B, S, D2]
inline constexpr char kClip2Pooled[] = "clip_2.pooled";  // [B, P2]
inline constexpr char kT5Tokens[] = "t5.tokens";         // [B, S3, D3]
inline constexpr char kT5Mask[] = "t5.mask";             // [B, S3]

// The name in a Conditioning: 1 where a token is attended to. [B, S]
inline constexpr char kPromptMask[] = "mask";

Conditioning ComposeSingleClip(const EncodedText& text);

// Shape of an SD3 pipeline's composed text, which its encoders do not say if T5 is missing.
struct Sd3TextShape {
  int64_t t5_length = 0;  // Tokens of T5: 128 in Flow-GRPO, 256 in diffusers' pipeline.
  int64_t width = 0;      // joint_attention_dim, which is T5's d_model.
};

// tokens [B, S + t5_length, width] float32, pooled [B, P + P2]. Requires the two CLIPs together to
// be no wider than `width`, and T5, if it is there, to be of the given length and width.
Conditioning ComposeSd3(const EncodedText& text, const Sd3TextShape& shape);

// Requires kT5Tokens and kClipPooled.
Conditioning ComposeFlux(const EncodedText& text);

// Requires kT5Tokens.
Conditioning ComposeWan(const EncodedText& text);

// Requires kT5Tokens and kT5Mask.
Conditioning ComposeLtx(const EncodedText& text);

}  // namespace oxbow::model
