// SPDX-License-Identifier: Apache-2.0
// For any request to the metrics port: it is answered with the page, with 404, or not at all, and
// the next request gets the page. For any page of another process: sums of its series are found.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "base/check.h"
#include "base/descriptor.h"
#include "cli/oncall/metrics_page.h"
#include "telemetry/metrics.h"
#include "tests/fuzz/bytes_input.h"

namespace {

constexpr char kPage[] = "family 1\n";

// 127.0.0.0/8 with this host part; 1 is the usual address.
sockaddr_in Loopback(uint16_t host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl((INADDR_LOOPBACK & 0xff000000) | host);
  return address;
}

// Calls once more what a signal interrupted: libFuzzer's alarm for slow inputs comes every few
// seconds.
template <typename Call>
auto Uninterrupted(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

// The test opens thousands of connections a second, and a closed one keeps its pair of addresses
// for a while: each comes from another address.
oxbow::Descriptor Connected(int port) {
  static uint16_t host = 0;
  host = static_cast<uint16_t>(host < 256 ? 256 : host + 1);
  oxbow::Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in from = Loopback(host, 0), to = Loopback(1, static_cast<uint16_t>(port));
  OXBOW_CHECK(::bind(client.value, reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0)
      << strerror(errno);
  const int called = Uninterrupted(
      [&] { return ::connect(client.value, reinterpret_cast<const sockaddr*>(&to), sizeof to); });
  OXBOW_CHECK(called == 0 || errno == EISCONN) << strerror(errno);
  return client;
}

std::string Answer(int port, std::string_view request) {
  const oxbow::Descriptor client = Connected(port);
  Uninterrupted([&] { return ::send(client.value, request.data(), request.size(), MSG_NOSIGNAL); });
  ::shutdown(client.value, SHUT_WR);
  std::string answer;
  char bytes[4096];
  for (ssize_t got;
       (got = Uninterrupted([&] { return ::recv(client.value, bytes, sizeof bytes, 0); })) > 0;) {
    answer.append(bytes, static_cast<size_t>(got));
  }
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const auto server =
      telemetry::PageServer::Start("127.0.0.1:0", {}, [] { return std::string(kPage); }).value();
  const std::string text(fuzz::Text(data, size));
  (void)cli::SumOfSeries(text, "family", "label=\"a\"");
  const std::string answer = Answer(server->port(), text);
  OXBOW_CHECK(answer.empty() || absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n") ||
              absl::StartsWith(answer, "HTTP/1.1 404 Not Found\r\n"))
      << answer;
  if (size % 16 != 0) return 0;
  OXBOW_CHECK(absl::EndsWith(Answer(server->port(), "GET /metrics HTTP/1.0\r\n\r\n"), kPage));
  return 0;
}
