// SPDX-License-Identifier: Apache-2.0
// A server of others that is asked over HTTP: one question, one answer, within one deadline.
//
//   answer of the server            status              asked again
//   200                             its body            -
//   no connection, 502, 503, 504    kUnavailable        yes
//   429                             kResourceExhausted  yes
//   no end before the deadline      kDeadlineExceeded   no
//   401, 403                        kPermissionDenied   no
//   301 and other redirects         kFailedPrecondition no: its error names the target
//   404, 405 and the like           kFailedPrecondition no
//   400, 413, 422                   kInvalidArgument    no
//   other 5xx                       kInternal           no: such a server failed on these items
//   cut, too long, not HTTP         kDataLoss           no
//   Stop was called                 kUnavailable        no
//
// Pauses before another try double from .25 s, each at a random .5 to 1 of its length, and are
// never shorter than the server's Retry-After. A pause that would not end in time is not begun. No
// error and no log contains the key, not even where the server repeats it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "core/reward/scorer.h"
#include "io/http_client.h"

namespace oxbow::rewards {

// Answers of others' servers, as JSON. The bytes are not trusted: depth and length are bounded,
// a number that is missing, null, NaN or infinite is the error of its item and never a number.
// Errors may have long excerpts of the answer: RemoteServer::Clean makes them short.
//
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

// For one batch, unless its entry says otherwise; below the standard reward.timeout_seconds.
inline constexpr double kRemoteSecondsMax = 20;

// Results of a server that are kept, unless its entry says otherwise: a number and a note each.
inline constexpr uint32_t kRemoteCacheItems = 4096;

class RemoteServer {
 public:
  struct Options {
    std::string url;  // As io::CheckHttpUrl wants it; a slash at its end does not count.
    std::string key;  // Empty: none.
    size_t answer_bytes_max = size_t{1} << 20;
    const Clock* clock = &Clock::Steady();
    std::function<void(absl::Duration)> pause = nullptr;  // Null: sleeps, until Stop at most.
  };

  explicit RemoteServer(Options options);

  // Posts JSON to URL + `path`; the body of the answer. `until` is in the clock's time.
  // Thread-safe.
  absl::StatusOr<std::string> Ask(const std::string& path, const std::string& json,
                                  absl::Duration until);

  // This process ends: questions end within a second, later ones at once. Thread-safe.
  void Stop();

  // `text` without the key, for people.
  std::string WithoutKey(const std::string& text) const;
  // An error without the key, of a length for one line.
  absl::Status Clean(const absl::Status& error) const;

  absl::Duration Now() const { return options_.clock->Now(); }

 private:
  const Options options_;
  io::HttpClient client_;
  absl::Notification stopped_;
};

// The key in a file, without blanks around it; kNotFound, or kInvalidArgument if it is empty, has
// other than printable characters or more than 4096: the text is never repeated.
absl::StatusOr<std::string> ReadKey(const std::string& file);

}  // namespace oxbow::rewards
