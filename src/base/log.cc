// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/trace.h"

namespace oxbow {
namespace {

struct LogSettings {
  LogLevel minimum = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::string service;
};

LogSettings& Settings() {
  static LogSettings& settings = *new LogSettings;
  return settings;
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Values come from other processes, too: none may end a line, or move the cursor of a terminal.
std::string TextValue(std::string_view value) {
  std::string out;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&out, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      out += c;
    }
  }
  return out;
}

// A terminal may show a line that is rewritten in place, such as a progress bar: it gives way.
const char* LineStart() {
  const char* const term = std::getenv("TERM");
  const bool rewrites = term != nullptr && std::string_view(term) != "dumb" &&
                        std::getenv("NO_COLOR") == nullptr && ::isatty(STDERR_FILENO) == 1;
  return rewrites ? "\r\033[K" : "";
}

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

}  // namespace

void ConfigureLog(LogLevel minimum, LogFormat format, std::string service) {
  Settings() = {minimum, format, std::move(service)};
}

bool LogEnabled(LogLevel level) { return level >= Settings().minimum; }

LogEvent::LogEvent(LogLevel level, const char* file, int line)
    : level_(level), file_(file), line_(line) {}

LogEvent::~LogEvent() {
  if (const std::optional<Trace> trace = CurrentTrace(); trace.has_value()) {
    fields_.emplace_back("trace", TraceId(*trace));
  }
  const absl::Time time = absl::Now();
  std::string out;
  if (Settings().format == LogFormat::kJson) {
    out = absl::StrCat(
        "{\"time\":\"", absl::FormatTime(absl::RFC3339_full, time, absl::UTCTimeZone()),
        "\",\"level\":\"", kNames[static_cast<int>(level_)],
        "\",\"service\":", JsonString(Settings().service), ",\"event\":", JsonString(message_));
    for (const Field& field : fields_) {
      absl::StrAppend(&out, ",", JsonString(field.key), ":", JsonString(field.value));
    }
    out += "}\n";
  } else {
    const char letter = "DIWE"[static_cast<int>(level_)];
    out = absl::StrCat(LineStart(), std::string(1, letter), " ",
                       absl::FormatTime("%H:%M:%E3S", time, absl::UTCTimeZone()), " ",
                       Settings().service, Settings().service.empty() ? "" : ": ", message_);
    for (const Field& field : fields_)
      absl::StrAppend(&out, " ", field.key, "=", TextValue(field.value));
    if (level_ >= LogLevel::kError) absl::StrAppend(&out, " (", file_, ":", line_, ")");
    out += "\n";
  }
  // One write per line keeps lines of several threads whole.
  if (::write(STDERR_FILENO, out.data(), out.size()) < 0) return;
}

}  // namespace oxbow
