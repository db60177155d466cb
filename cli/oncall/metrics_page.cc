// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/metrics_page.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace oxbow::cli {
namespace {

constexpr size_t kPageBytesMax = size_t{16} << 20;

// The complete answer to a GET, with headers.
std::string Exchange(int peer, const std::string& endpoint) {
  const std::string request = absl::StrCat("GET /metrics HTTP/1.0\r\nHost: ", endpoint, "\r\n\r\n");
  std::string answer;
  if (send(peer, request.data(), request.size(), MSG_NOSIGNAL) < 0) return answer;
  char bytes[16384];
  for (ssize_t got;
       answer.size() < kPageBytesMax && (got = recv(peer, bytes, sizeof bytes, 0)) > 0;)
    answer.append(bytes, static_cast<size_t>(got));
  return answer;
}

}  // namespace

absl::StatusOr<std::string> FetchMetrics(const std::string& endpoint, absl::Duration timeout) {
  const auto away = absl::UnavailableError(absl::StrCat("no metrics at ", endpoint));
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) return away;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  absl::string_view host = absl::string_view(endpoint).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  if (getaddrinfo(std::string(host).c_str(), endpoint.substr(colon + 1).c_str(), &hints, &found) !=
      0) {
    return away;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  const int peer = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (peer < 0) return away;
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  std::string answer;
  if (connect(peer, found->ai_addr, found->ai_addrlen) == 0) answer = Exchange(peer, endpoint);
  close(peer);
  const size_t body = answer.find("\r\n\r\n");
  if (body == std::string::npos) return away;
  return answer.substr(body + 4);
}

double SumOfSeries(const std::string& page, const std::string& family, const std::string& label) {
  double sum = 0;
  for (const absl::string_view part : absl::StrSplit(page, '\n')) {
    const std::string_view line(part.data(), part.size());
    if (line.substr(0, family.size()) != family) continue;
    const std::string_view rest = line.substr(family.size());
    if (rest.empty() || (rest[0] != '{' && rest[0] != ' ')) continue;
    if (!label.empty() && rest.find(label) == std::string_view::npos) continue;
    sum += std::strtod(std::string(rest.substr(rest.rfind(' ') + 1)).c_str(), nullptr);
  }
  return sum;
}

}  // namespace oxbow::cli
