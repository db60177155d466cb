// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/scrape.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>

namespace oxbow::testing {
namespace {

// The answer to a GET, with headers; empty if there is none.
std::string Get(const std::string& endpoint, const std::string& path) {
  const size_t colon = endpoint.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (colon == std::string::npos ||
      inet_pton(AF_INET, endpoint.substr(0, colon).c_str(), &address.sin_addr) != 1)
    return "";
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(endpoint.c_str() + colon + 1)));
  const int peer = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{.tv_sec = 2, .tv_usec = 0};
  setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  std::string answer;
  if (::connect(peer, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const std::string request = "GET " + path + " HTTP/1.0\r\nHost: " + endpoint + "\r\n\r\n";
    ::send(peer, request.data(), request.size(), MSG_NOSIGNAL);
    char bytes[4096];
    for (ssize_t got; (got = ::recv(peer, bytes, sizeof bytes, 0)) > 0;)
      answer.append(bytes, static_cast<size_t>(got));
  }
  ::close(peer);
  return answer;
}

}  // namespace

std::optional<double> Scrape(const std::string& endpoint, const std::string& series) {
  const std::string page = Get(endpoint, "/metrics");
  const std::string start = "\n" + series + " ";
  const size_t found = page.find(start);
  if (found == std::string::npos) return std::nullopt;
  return std::strtod(page.c_str() + found + start.size(), nullptr);
}

}  // namespace oxbow::testing
