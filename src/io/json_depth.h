// SPDX-License-Identifier: Apache-2.0
// How deeply JSON is nested, looked at before it is parsed: each level costs a parser memory.
#pragma once

#include <string_view>

namespace oxbow::io {

// True if arrays and objects are open more than `depth_max` deep somewhere. Of text that is no JSON
// either may be said.
bool IsNestedBeyond(std::string_view json, int depth_max);

}  // namespace oxbow::io
