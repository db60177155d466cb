// SPDX-License-Identifier: Apache-2.0
// Requests and answers of Flow-Factory's remote reward protocol, as a server reads and writes them.
//
//   POST /NAME/compute {"prompt": [text], "image": [base64 of PNG or JPEG] or null,
//                       "video": [[base64]] or null, "extra": [metadata object or null] or null}
//   -> 200 {"rewards": [number]}; an error is 4xx or 5xx with {"detail": text}
//
// There every item has a reward, or the call fails: an item without a score fails it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/image8.h"
#include "core/reward/scorer.h"

namespace oxbow::reward {

struct ComputeRequest {
  struct One {
    std::string prompt;
    std::string metadata_json;   // Empty: none.
    std::vector<Image8> frames;  // One is a picture.
  };
  std::vector<One> items;
};

// The bytes are not trusted. kInvalidArgument names what is wrong and where: no JSON, lists of
// different lengths, no item or more than `items_max`, pictures that cannot be read or have more
// than kRequestPixelsMax pixels together. Other keys (condition_images) must be null or empty.
absl::StatusOr<ComputeRequest> ReadComputeRequest(const std::string& body, size_t items_max);

inline constexpr int64_t kRequestPixelsMax = int64_t{1} << 26;

struct HttpReply {
  int code = 200;
  std::string body;  // JSON.
};

// The answer to a request whose items have these scores, in its order: 200 only if each has one.
HttpReply ReplyOf(const std::vector<absl::StatusOr<Score>>& scores);
HttpReply ReplyOf(const absl::Status& error);

}  // namespace oxbow::reward
