// SPDX-License-Identifier: Apache-2.0
// JSON as text. A source that parses or writes it by itself takes the compiler two seconds more.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace oxbow {

// Discarded (is_discarded()) if the text is no JSON.
nlohmann::json ParseJson(std::string_view text);

// The object in a file. kDataLoss, naming the file, if it holds no JSON object; else as ReadFile.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::filesystem::path& path,
                                              uint64_t bytes_max);

// True if arrays and objects are open more than `depth_max` deep somewhere: each level costs a
// parser memory. Of text that is no JSON either may be said.
bool IsNestedBeyond(std::string_view text, int depth_max);

// The text under a key of an object; empty without one, or where it is no text.
std::string TextIn(const nlohmann::json& object, const char* key);

// A member of an object; null if it has none of the name, or is no object.
const nlohmann::json& MemberOf(const nlohmann::json& object, const char* key);

// On one line, or with this indent. Bytes that are no UTF-8 become U+FFFD.
std::string JsonText(const nlohmann::json& value, int indent = -1);

}  // namespace oxbow
