// SPDX-License-Identifier: Apache-2.0
#include "rewards/remote_server.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/first_part.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::rewards {
namespace {

using Json = nlohmann::json;

constexpr int kDepthMax = 32;
constexpr size_t kExcerptMax = 8192;  // A key in it is whole, so that it can be found.

std::string Excerpt(std::string_view text) {
  return absl::CHexEscape(std::string(text.substr(0, kExcerptMax)));
}

std::string_view Stripped(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

// The length of a word at the start of `text` that Python writes for a number that is none; 0:
// none.
size_t NoNumber(std::string_view text) {
  for (const std::string_view word : {"NaN", "-Infinity", "Infinity"}) {
    if (text.starts_with(word)) return word.size();
  }
  return 0;
}

// The text with null for numbers that are none.
std::string Prepared(std::string_view text) {
  std::string prepared;
  prepared.reserve(text.size());
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\' && i + 1 < text.size()) prepared.push_back(text[i++]);
      quoted = c != '"';
    } else if (const size_t word = NoNumber(text.substr(i, 9)); word > 0) {
      prepared += "null";
      i += word - 1;
      continue;
    } else {
      quoted = c == '"';
    }
    prepared.push_back(text[i]);
  }
  return prepared;
}

// Discarded if it is no JSON, or nested too deeply.
Json Parsed(std::string_view text) {
  if (IsNestedBeyond(text, kDepthMax)) return Json(Json::value_t::discarded);
  return ParseJson(Prepared(text));
}

// "error" or "detail" of an object, whatever its shape.
std::string Complaint(const Json& answer) {
  for (const char* key : {"error", "detail", "message"}) {
    const auto at = answer.find(key);
    if (at == answer.end() || at->is_null()) continue;
    if (at->is_object() && at->contains("message")) return Complaint(*at);
    return at->is_string() ? at->get<std::string>()
                           : at->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return "";
}

absl::StatusOr<Json> ReadObject(std::string_view text) {
  const std::string_view start = Stripped(text);
  if (start.starts_with("<")) {
    return absl::DataLossError(absl::StrCat("an HTML page where JSON was due: ", Excerpt(start)));
  }
  Json json = Parsed(text);
  if (!json.is_object()) {
    return absl::DataLossError(absl::StrCat("the answer is no JSON object: ", Excerpt(text)));
  }
  if (json.contains("error") && !json["error"].is_null()) {
    return absl::InternalError(absl::StrCat("the server reports: ", Excerpt(Complaint(json))));
  }
  return json;
}

const Json& First(const Json& json) {
  static const Json& null = *new Json;
  return json.is_array() && !json.empty() ? json.front() : null;
}

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

absl::StatusOr<std::vector<absl::StatusOr<reward::Score>>> RewardsOfAnswer(std::string_view answer,
                                                                           size_t count) {
  OXBOW_ASSIGN_OR_RETURN(const Json json, ReadObject(answer));
  const Json& rewards = MemberOf(json, "rewards");
  if (!rewards.is_array()) {
    return absl::DataLossError("the answer has no list `rewards`");
  }
  if (rewards.size() != count) {
    return absl::DataLossError(
        absl::StrCat("the answer has ", rewards.size(), " rewards for ", count, " items"));
  }
  std::vector<absl::StatusOr<reward::Score>> scores;
  for (const Json& reward : rewards) {
    if (reward.is_number() && std::isfinite(reward.get<double>())) {
      scores.emplace_back(reward::Score{.value = reward.get<double>()});
    } else {
      scores.emplace_back(absl::DataLossError(
          absl::StrCat("the server's reward is no finite number (", reward.type_name(), ")")));
    }
  }
  return scores;
}

absl::StatusOr<ChatAnswer> ReadChatAnswer(std::string_view answer) {
  OXBOW_ASSIGN_OR_RETURN(const Json json, ReadObject(answer));
  const Json& choice = First(MemberOf(json, "choices"));
  if (!choice.is_object()) return absl::DataLossError("the judge's answer has no choice");
  ChatAnswer chat;
  const Json& content = MemberOf(MemberOf(choice, "message"), "content");
  if (content.is_string()) chat.text = content.get<std::string>();
  const Json& token = First(MemberOf(MemberOf(choice, "logprobs"), "content"));
  const Json& candidates = MemberOf(token, "top_logprobs");
  if (!candidates.is_array()) return chat;
  for (const Json& candidate : candidates) {
    const Json& name = MemberOf(candidate, "token");
    const Json& value = MemberOf(candidate, "logprob");
    if (!name.is_string() || !value.is_number()) continue;
    chat.first_token.emplace(name.get<std::string>(), value.get<double>());
  }
  return chat;
}

std::string ReasonOf(std::string_view answer) {
  const Json json = Parsed(answer);
  const std::string reason = json.is_object() ? Complaint(json) : "";
  return Excerpt(reason.empty() ? Stripped(answer) : std::string_view(reason));
}

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
