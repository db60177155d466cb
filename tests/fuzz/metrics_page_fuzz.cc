// SPDX-License-Identifier: Apache-2.0
// For any request to the metrics port: it is answered with the page, with 404, or not at all, and
// the next request gets the page. For any page of another process: sums of its series are found.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/match.h"
#include "base/check.h"
#include "base/descriptor.h"
#include "cli/oncall/metrics_page.h"
#include "telemetry/page_server.h"
#include "tests/fuzz/bytes_input.h"

namespace {

constexpr char kPage[] = "family 1\n";

std::string Answer(int port, std::string_view request) {
  const oxbow::Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // The port is free again at once: the test opens thousands of connections.
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(client.value, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  OXBOW_CHECK(::connect(client.value, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  (void)::send(client.value, request.data(), request.size(), MSG_NOSIGNAL);
  ::shutdown(client.value, SHUT_WR);
  std::string answer;
  char bytes[4096];
  for (ssize_t got; (got = ::recv(client.value, bytes, sizeof bytes, 0)) > 0;) {
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
