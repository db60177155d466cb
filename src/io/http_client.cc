// SPDX-License-Identifier: Apache-2.0
#include "io/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"

namespace oxbow::io {
namespace {

constexpr size_t kHeaderBytesMax = size_t{64} << 10;
constexpr size_t kIdleMax = 64;  // Connections that are kept for later calls.

struct EndHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
using Handle = std::unique_ptr<CURL, EndHandle>;

struct EndList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, EndList>;

Headers HeadersOf(const HttpRequest& request) {
  // Without `Expect:` curl waits for the server's leave before a long body.
  std::vector<std::string> lines = {"Content-Type: application/json", "Accept: application/json",
                                    "Expect:"};
  if (!request.bearer.empty())
    lines.push_back(absl::StrCat("Authorization: Bearer ", request.bearer));
  curl_slist* headers = nullptr;
  for (const std::string& line : lines) {
    headers = curl_slist_append(headers, line.c_str());
    OXBOW_CHECK(headers != nullptr) << "no memory for HTTP headers";
  }
  return Headers(headers);
}

// An answer as it comes in.
struct Incoming {
  HttpAnswer answer;
  size_t body_max = 0;
  size_t header_bytes = 0;
  bool too_long = false;
};

size_t TakeBody(char* bytes, size_t /*one*/, size_t count, void* to) {
  Incoming& incoming = *static_cast<Incoming*>(to);
  incoming.too_long = count > incoming.body_max - incoming.answer.body.size();
  if (incoming.too_long) return 0;  // Ends the exchange.
  incoming.answer.body.append(bytes, count);
  return count;
}

size_t TakeHeader(char* bytes, size_t /*one*/, size_t count, void* to) {
  Incoming& incoming = *static_cast<Incoming*>(to);
  incoming.header_bytes += count;
  incoming.too_long = incoming.header_bytes > kHeaderBytesMax;
  if (incoming.too_long) return 0;
  const absl::string_view line(bytes, count);
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos) return count;
  const std::string name = absl::AsciiStrToLower(line.substr(0, colon));
  const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
  int seconds = 0;
  if (name == "location") {
    incoming.answer.location = std::string(value);
  } else if (name == "retry-after" && absl::SimpleAtoi(value, &seconds)) {
    incoming.answer.retry_after = absl::Seconds(std::clamp(seconds, 0, 86400));
  }
  return count;
}

// curl calls it once a second at least; not 0 ends the exchange.
int EndsExchange(void* cancelled, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return *static_cast<const std::atomic<bool>*>(cancelled) ? 1 : 0;
}

absl::StatusCode CodeOf(CURLcode code) {
  switch (code) {
    case CURLE_ABORTED_BY_CALLBACK:
      return absl::StatusCode::kCancelled;
    case CURLE_OPERATION_TIMEDOUT:
      return absl::StatusCode::kDeadlineExceeded;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return absl::StatusCode::kFailedPrecondition;
    case CURLE_PARTIAL_FILE:
    case CURLE_UNSUPPORTED_PROTOCOL:  // HTTP/0.9, which is any text at all.
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_WRITE_ERROR:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

absl::Status CheckHttpUrl(const std::string& url) {
  absl::string_view rest = url;
  const bool scheme =
      absl::ConsumePrefix(&rest, "http://") || absl::ConsumePrefix(&rest, "https://");
  const bool host = !rest.empty() && rest.front() != '/' && rest.front() != ':';
  const bool plain = std::all_of(rest.begin(), rest.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '@' && c != '?' && c != '#';
  });
  if (scheme && host && plain && url.size() <= 2000) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a URL is http://HOST[:PORT][/PATH] or https://..., without user, password and "
                   "query (a key is read from key_file)",
                   scheme && host ? "" : absl::StrCat(", got ", url.substr(0, 80))));
}

// Handles that wait for their next call, with their open connections.
class HttpClient::Connections {
 public:
  Handle Take() {
    absl::MutexLock lock(&mutex_);
    if (idle_.empty()) return Handle(curl_easy_init());
    Handle handle = std::move(idle_.back());
    idle_.pop_back();
    return handle;
  }
  void Return(Handle handle) {
    curl_easy_reset(handle.get());  // Options, not connections.
    absl::MutexLock lock(&mutex_);
    if (idle_.size() < kIdleMax) idle_.push_back(std::move(handle));
  }

 private:
  absl::Mutex mutex_;
  std::vector<Handle> idle_ ABSL_GUARDED_BY(mutex_);
};

HttpClient::HttpClient(const Options& options)
    : options_(options), connections_(std::make_unique<Connections>()) {
  static std::once_flag once;
  std::call_once(once,
                 [] { OXBOW_CHECK(curl_global_init(CURL_GLOBAL_ALL) == CURLE_OK) << "libcurl"; });
}

HttpClient::~HttpClient() = default;

absl::StatusOr<HttpAnswer> HttpClient::Post(const HttpRequest& request, absl::Duration time_max) {
  if (time_max < absl::Milliseconds(1)) {
    return absl::DeadlineExceededError(absl::StrCat(request.url, ": no time is left"));
  }
  Handle handle = connections_->Take();
  OXBOW_CHECK(handle != nullptr) << "no memory for an HTTP connection";
  CURL* curl = handle.get();
  const Headers headers = HeadersOf(request);
  Incoming incoming{.body_max = options_.answer_bytes_max};
  char reason[CURL_ERROR_SIZE] = "";
  const auto milliseconds = [](absl::Duration time) {
    return static_cast<long>(absl::ToInt64Milliseconds(std::min(time, absl::Hours(24))));  // NOLINT
  };
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_PROXY, "");  // None, whatever the environment says.
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, milliseconds(time_max));
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(options_.connect_max));
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.data());
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, TakeBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &incoming);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, TakeHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &incoming);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, EndsExchange);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &cancelled_);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
  const CURLcode code = curl_easy_perform(curl);
  long status = 0;  // NOLINT: the type that curl writes.
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  connections_->Return(std::move(handle));
  if (incoming.too_long) {
    return absl::DataLossError(absl::StrCat(request.url, ": the answer is longer than ",
                                            options_.answer_bytes_max, " bytes"));
  }
  if (code != CURLE_OK) {
    const char* why = reason[0] != '\0' ? reason : curl_easy_strerror(code);
    return absl::Status(CodeOf(code), absl::StrCat(request.url, ": ", why));
  }
  incoming.answer.code = static_cast<int>(status);
  return std::move(incoming.answer);
}

}  // namespace oxbow::io
