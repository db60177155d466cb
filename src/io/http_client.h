// SPDX-License-Identifier: Apache-2.0
// An HTTP client for reward servers and judges of others: POST of JSON, one exchange a call.
//
// Nothing happens behind the caller's back: no redirect is followed, no proxy is used, no cookie is
// kept, no answer is unpacked. A call has a deadline, and an answer a limit of bytes. Connections
// stay open for later calls. https checks the server's certificate against the system's
// authorities.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::io {

struct HttpRequest {
  std::string url;   // As CheckHttpUrl wants it.
  std::string body;  // Sent as application/json.
  // Sent as `Authorization: Bearer`; empty: not sent. No error contains it.
  std::string bearer = {};
};

struct HttpAnswer {
  int code = 0;          // 200, 301, 500
  std::string location;  // Where a redirect points, as the server wrote it.
  std::string body;
  absl::Duration retry_after = absl::ZeroDuration();  // Pause that the server asks for in seconds.
};

// kInvalidArgument unless the URL is http:// or https://, with a host, and without blanks, user,
// password, query and fragment: those may hold secrets, and errors print the URL.
absl::Status CheckHttpUrl(const std::string& url);

// Thread-safe; calls run side by side.
class HttpClient {
 public:
  struct Options {
    size_t answer_bytes_max = size_t{1} << 20;
    absl::Duration connect_max = absl::Seconds(5);
  };

  explicit HttpClient(const Options& options);
  ~HttpClient();

  // The server's answer, whatever its code. Errors name the URL: kDeadlineExceeded after
  // `time_max`, kUnavailable if no connection is made or it breaks, kDataLoss for an answer that is
  // cut, too long or not HTTP, kFailedPrecondition for a certificate that is not accepted. Requires
  // a URL that CheckHttpUrl takes and a bearer of printable characters.
  absl::StatusOr<HttpAnswer> Post(const HttpRequest& request, absl::Duration time_max);

  // Ends all calls within a second, and later ones at once, with kCancelled. Thread-safe.
  void Cancel() { cancelled_ = true; }

 private:
  class Connections;
  const Options options_;
  const std::unique_ptr<Connections> connections_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace oxbow::io
