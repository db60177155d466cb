// SPDX-License-Identifier: Apache-2.0
// JSON as text. A source that parses or writes it by itself takes the compiler two seconds more.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace oxbow {

// Discarded (is_discarded()) if the text is no JSON.
nlohmann::json ParseJson(std::string_view text);

// True if arrays and objects are open more than `depth_max` deep somewhere: each level costs a
// parser memory. Of text that is no JSON either may be said.
bool IsNestedBeyond(std::string_view text, int depth_max);

// The text under a key of an object; empty without one, or where it is no text.
std::string TextIn(const nlohmann::json& object, const char* key);

// On one line, or with this indent. Bytes that are no UTF-8 become U+FFFD.
std::string JsonText(const nlohmann::json& value, int indent = -1);

}  // namespace oxbow
