// SPDX-License-Identifier: Apache-2.0
// Structured log of state changes: OXBOW_LOG(Info) << "lease granted" << Field("group", 7);
//
// One line per event on stderr, as text ("I 12:00:03.123 lease granted group=7") or as JSON. The
// event comes first and is a constant text; values go into fields. Details of single items belong
// in metrics.
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace oxbow {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };
enum class LogFormat { kText, kJson };

// Call it once in main, before any thread starts. `service` is printed with every JSON line.
void ConfigureLog(LogLevel minimum, LogFormat format, std::string service);

struct Field {
  template <typename T>
  Field(std::string_view k, const T& v) : key(k) {
    std::ostringstream out;
    out << v;
    value = out.str();
  }
  std::string key;
  std::string value;
};

// Collects one event and writes it as one line when destroyed. Thread-safe across instances.
class LogEvent {
 public:
  LogEvent(LogLevel level, const char* file, int line);
  ~LogEvent();
  LogEvent(const LogEvent&) = delete;
  LogEvent& operator=(const LogEvent&) = delete;

  LogEvent& operator<<(std::string_view text) {
    message_ += text;
    return *this;
  }
  LogEvent& operator<<(Field field) {
    fields_.push_back(std::move(field));
    return *this;
  }

 private:
  const LogLevel level_;
  const char* const file_;
  const int line_;
  std::string message_;
  std::vector<Field> fields_;
};

bool LogEnabled(LogLevel level);

}  // namespace oxbow

#define OXBOW_LOG(severity)                                   \
  if (!::oxbow::LogEnabled(::oxbow::LogLevel::k##severity)) { \
  } else /* NOLINT */                                         \
    ::oxbow::LogEvent(::oxbow::LogLevel::k##severity, __FILE__, __LINE__)
