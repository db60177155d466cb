// SPDX-License-Identifier: Apache-2.0
// The names that ComfyUI gives to the modules of a network, where they are not those of diffusers.
#pragma once

#include <string>
#include <string_view>

namespace oxbow::io {

// The key of an adapter's module in a file for ComfyUI: "transformer.blocks.0.attn.to_q" for most
// classes of transformers, which ComfyUI knows by their names in diffusers.
std::string ComfyName(std::string_view transformer_class, std::string_view module);

}  // namespace oxbow::io
