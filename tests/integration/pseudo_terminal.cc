// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/pseudo_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/process.h"
#include "base/status_macros.h"

namespace oxbow::testing {
namespace {

constexpr std::string_view kEraseRest = "\033[K";

// Reads until no process has the terminal open any more. False after the deadline.
bool ReadAll(int terminal, absl::Time deadline, std::string& text) {
  std::array<char, 4096> buffer;
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd ready{.fd = terminal, .events = POLLIN, .revents = 0};
    if (left <= 0) return false;
    if (poll(&ready, 1, static_cast<int>(left)) <= 0) continue;
    const ssize_t count = read(terminal, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;  // Linux says EIO there.
    text.append(buffer.data(), static_cast<size_t>(count));
  }
}

// A character of a line, with the bytes that follow its first one.
using Cells = std::vector<std::string>;

std::string TextOf(const Cells& cells) {
  std::string text;
  for (const std::string& cell : cells) text += cell;
  return text;
}

bool ContinuesCharacter(char byte) { return (byte & 0xC0) == 0x80; }

}  // namespace

absl::StatusOr<TerminalSession> RunInTerminal(const std::vector<std::string>& argv,
                                              uint16_t columns, absl::Duration timeout) {
  const winsize size{.ws_row = 40, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int master = -1, slave = -1;
  if (openpty(&master, &slave, nullptr, nullptr, &size) != 0) {
    return absl::UnavailableError(absl::StrCat("no pseudo-terminal: ", std::strerror(errno)));
  }
  // The child has them as stdout and stderr alone, or the terminal would never end.
  for (const int end : {master, slave}) fcntl(end, F_SETFD, FD_CLOEXEC);
  unsetenv("NO_COLOR");
  const absl::StatusOr<pid_t> pid =
      Spawn({.binary = argv.front(),
             .argv = argv,
             .environment = {"TERM=xterm-256color"},
             .output = SpawnOptions::Output{.out = slave, .err = slave},
             .signals = ChildSignals::kDefault});
  close(slave);
  TerminalSession session;
  bool in_time = false;
  if (pid.ok()) {
    in_time = ReadAll(master, absl::Now() + timeout, session.text);
    if (!in_time) kill(*pid, SIGKILL);
    int status = 0;
    while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
    }
    session.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  close(master);
  OXBOW_RETURN_IF_ERROR(pid.status());
  if (!in_time) return absl::DeadlineExceededError("did not end: " + session.text);
  return session;
}

Screen ScreenOf(const std::string& text) {
  Screen screen;
  Cells cells;
  size_t column = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = std::string_view(text).substr(at);
    if (rest.starts_with(kEraseRest)) {
      // Before an erasure the line is whole: that is the state that a person saw.
      if (column == 0 && !cells.empty()) {
        screen.rewritten.push_back(TextOf(cells));
        screen.rewritten_at.push_back(screen.lines.size());
      }
      if (column < cells.size()) cells.resize(column);
      at += kEraseRest.size() - 1;
    } else if (text[at] == '\r') {
      column = 0;
    } else if (text[at] == '\n') {
      screen.lines.push_back(TextOf(cells));
      cells.clear();
      column = 0;
    } else if (ContinuesCharacter(text[at]) && column > 0) {
      cells[column - 1] += text[at];
    } else {
      if (column == cells.size()) cells.emplace_back();
      cells[column++] = std::string(1, text[at]);
    }
  }
  if (!cells.empty()) screen.lines.push_back(TextOf(cells));
  return screen;
}

size_t WidthOf(const std::string& line) {
  size_t width = 0;
  for (const char byte : line) width += !ContinuesCharacter(byte);
  return width;
}

}  // namespace oxbow::testing
