// SPDX-License-Identifier: Apache-2.0
#include "rewards/remote_server.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/first_part.h"
#include "base/status_macros.h"
#include "rewards/remote_answer.h"

namespace oxbow::rewards {
namespace {

constexpr absl::Duration kPauseFirst = absl::Milliseconds(250);
constexpr absl::Duration kPauseMax = absl::Seconds(8);
constexpr size_t kKeyMax = 4096;
constexpr size_t kMessageMax = 300;
constexpr char kStopped[] = "this process ends, its questions with it";

absl::StatusCode CodeOf(int http) {
  if (http >= 300 && http < 400) return absl::StatusCode::kNotFound;
  switch (http) {
    case 400:
    case 413:
    case 422:
      return absl::StatusCode::kInvalidArgument;
    case 401:
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    case 502:
    case 503:
    case 504:
      return absl::StatusCode::kUnavailable;
    default:
      return http >= 500 ? absl::StatusCode::kInternal : absl::StatusCode::kNotFound;
  }
}

absl::Status StatusOf(const std::string& url, const io::HttpAnswer& answer) {
  if (answer.code >= 200 && answer.code < 300) return absl::OkStatus();
  std::string message = absl::StrCat(url, ": HTTP ", answer.code);
  if (!answer.location.empty()) {
    absl::StrAppend(&message, ", redirects to ", absl::CHexEscape(answer.location),
                    ": redirects are not followed, name that URL in the config");
  } else if (answer.code == 401 || answer.code == 403) {
    absl::StrAppend(&message, ", the key (key_file) is not accepted");
  }
  const std::string reason = ReasonOf(answer.body);
  if (!reason.empty()) absl::StrAppend(&message, ": ", reason);
  return absl::Status(CodeOf(answer.code), message);
}

// The pause before try `next`, which begins with 1.
absl::Duration PauseBefore(int next, absl::Duration asked_for) {
  thread_local std::minstd_rand random{std::random_device{}()};
  const absl::Duration full = std::min(kPauseFirst * (1 << std::min(next - 1, 10)), kPauseMax);
  return std::max(full * std::uniform_real_distribution(.5, 1.)(random), asked_for);
}

}  // namespace

RemoteServer::RemoteServer(Options options)
    : options_([&] {
        options.url = std::string(absl::StripSuffix(options.url, "/"));
        if (options.pause == nullptr) {
          options.pause = [this](absl::Duration pause) {
            stopped_.WaitForNotificationWithTimeout(pause);
          };
        }
        return std::move(options);
      }()),
      client_({.answer_bytes_max = options_.answer_bytes_max}) {}

absl::StatusOr<std::string> RemoteServer::Ask(const std::string& path, const std::string& json,
                                              absl::Duration until) {
  const io::HttpRequest request{
      .url = absl::StrCat(options_.url, path), .body = json, .bearer = options_.key};
  for (int next = 1;; ++next) {
    if (stopped_.HasBeenNotified()) return absl::UnavailableError(request.url + ": " + kStopped);
    absl::StatusOr<io::HttpAnswer> answer = client_.Post(request, until - Now());
    if (absl::IsCancelled(answer.status())) continue;
    const absl::Status status = answer.ok() ? StatusOf(request.url, *answer) : answer.status();
    if (status.ok()) return std::move(answer->body);
    const absl::Duration pause =
        PauseBefore(next, answer.ok() ? answer->retry_after : absl::ZeroDuration());
    const bool passes = absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
    if (!passes || Now() + pause >= until) {
      return Clean(status);
    }
    options_.pause(pause);
  }
}

void RemoteServer::Stop() {
  if (!stopped_.HasBeenNotified()) stopped_.Notify();
  client_.Cancel();
}

std::string RemoteServer::WithoutKey(const std::string& text) const {
  if (options_.key.empty()) return text;
  return absl::StrReplaceAll(text,
                             {{options_.key, "KEY"}, {absl::CHexEscape(options_.key), "KEY"}});
}

absl::Status RemoteServer::Clean(const absl::Status& error) const {
  return absl::Status(error.code(),
                      FirstPart(WithoutKey(std::string(error.message())), kMessageMax));
}

absl::StatusOr<std::string> ReadKey(const std::string& file) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, 2 * kKeyMax));
  std::string key(absl::StripAsciiWhitespace(text));
  const bool printable = std::all_of(key.begin(), key.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (key.empty() || key.size() > kKeyMax || !printable) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no key in ", file, ": it is one line of printable characters, at most ", kKeyMax));
  }
  return key;
}

}  // namespace oxbow::rewards
