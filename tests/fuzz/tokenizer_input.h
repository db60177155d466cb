// SPDX-License-Identifier: Apache-2.0
// Code shared by the fuzz targets of tokenizers: splits an input into several files and a text, and
// checks the ids of the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "tests/fuzz/scratch.h"

namespace oxbow::fuzz {

// `count` parts, separated by the first count - 1 record separators (byte 30); the last part may
// contain more of them.
inline std::vector<std::string> Parts(const uint8_t* data, size_t size, size_t count) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> parts;
  while (parts.size() + 1 < count) {
    const size_t end = rest.find('\x1e');
    parts.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  parts.emplace_back(rest);
  return parts;
}

// A refusal must name the files as its cause.
inline void CheckRefusal(const absl::Status& status) {
  OXBOW_CHECK(status.code() == absl::StatusCode::kDataLoss ||
              status.code() == absl::StatusCode::kInvalidArgument)
      << status.ToString();
}

// Checks that there are as many ids as requested, that all are in the vocabulary, and that a
// shorter row is the start of a longer one, with an end token.
template <class Tokenizer>
void CheckRows(const Tokenizer& tokenizer, const std::string& text) {
  constexpr int64_t kLong = 64;
  const std::vector<int64_t> row = tokenizer.Encode(text, kLong);
  OXBOW_CHECK(row.size() == size_t{kLong}) << row.size();
  for (const int64_t id : row) {
    OXBOW_CHECK(id >= 0 && id < tokenizer.size()) << id << " of " << tokenizer.size();
  }
  for (const int64_t length : {int64_t{2}, int64_t{9}}) {
    const std::vector<int64_t> start = tokenizer.Encode(text, length);
    OXBOW_CHECK(start.size() == static_cast<size_t>(length)) << start.size();
    for (size_t i = 0; i + 1 < start.size(); ++i) {
      OXBOW_CHECK(start[i] == row[i]) << start[i] << " and " << row[i] << " at " << i;
    }
  }
}

}  // namespace oxbow::fuzz
