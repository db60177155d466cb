// SPDX-License-Identifier: Apache-2.0
#include "io/json_depth.h"

namespace oxbow::io {

bool IsNestedBeyond(std::string_view json, int depth_max) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (depth > depth_max) return true;
  }
  return false;
}

}  // namespace oxbow::io
