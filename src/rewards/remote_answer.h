// SPDX-License-Identifier: Apache-2.0
// Answers of others' servers, as JSON. The bytes are not trusted: depth and length are bounded,
// a number that is missing, null, NaN or infinite is the error of its item and never a number.
// Errors may have long excerpts of the answer: RemoteServer::Clean makes them short.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/reward/scorer.h"

namespace oxbow::rewards {

// Flow-Factory's answer, {"rewards": [...]}, to a request of `count` items: a result each. NaN and
// Infinity, which Python writes and JSON does not know, are read as null. kDataLoss if the answer
// is no JSON object, or has no list of that length; kInternal with the server's words for {"error":
// ...}.
absl::StatusOr<std::vector<absl::StatusOr<reward::Score>>> RewardsOfAnswer(std::string_view answer,
                                                                           size_t count);

// The answer of a language model.
struct ChatAnswer {
  std::string text;
  std::map<std::string, double> first_token;  // Log-probabilities of the first token's candidates.
};

// The first choice of an answer of the OpenAI chat protocol. Either part may be missing. kDataLoss
// if there is no choice; kInternal with the server's words for {"error": ...}.
absl::StatusOr<ChatAnswer> ReadChatAnswer(std::string_view answer);

// The server's reason for a refusal, whatever its shape, in printable characters.
std::string ReasonOf(std::string_view answer);

}  // namespace oxbow::rewards
