// SPDX-License-Identifier: Apache-2.0
// How a fuzz target divides its input into messages: each has its length before it, two bytes, the
// low one first. A length beyond the end takes the rest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace oxbow::fuzz {

inline std::string_view Text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline std::vector<std::string_view> Messages(std::string_view input) {
  std::vector<std::string_view> messages;
  while (input.size() >= 2) {
    const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(input[i])); };
    const size_t length = std::min(byte(0) | byte(1) << 8, input.size() - 2);
    messages.push_back(input.substr(2, length));
    input.remove_prefix(2 + length);
  }
  return messages;
}

}  // namespace oxbow::fuzz
