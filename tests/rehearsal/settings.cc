// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/settings.h"

#include <errno.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace oxbow::rehearsal {
namespace {

[[noreturn]] void Refuse(const char* name, const std::string& value, const char* wanted) {
  std::fprintf(stderr, "rehearsal device: %s=%s: must be %s\n", name, value.c_str(), wanted);
  std::_Exit(2);
}

double Number(const char* name, double otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  if (end == text || *end != 0 || number < 0) Refuse(name, text, "a number, not negative");
  return number;
}

Mode ModeNamed(const std::string& name) {
  if (name == "now") return Mode::kNow;
  if (name == "late") return Mode::kLate;
  if (name == "dry") return Mode::kDry;
  Refuse("OXBOW_REHEARSAL_MODE", name, "now, late or dry");
}

Settings FromEnvironment() {
  Settings settings;
  settings.devices = static_cast<int>(Number("OXBOW_REHEARSAL_DEVICES", 1));
  if (std::getenv("OXBOW_REHEARSAL_MEMORY") != nullptr) {
    settings.memory_bytes = static_cast<size_t>(Number("OXBOW_REHEARSAL_MEMORY", 0));
  }
  const char* const fails_in = std::getenv("OXBOW_REHEARSAL_FAIL_IN");
  if (fails_in == nullptr || std::string(fails_in) == program_invocation_short_name) {
    settings.failing_allocation = static_cast<uint64_t>(Number("OXBOW_REHEARSAL_FAIL", 0));
  }
  if (const char* ipc = std::getenv("OXBOW_REHEARSAL_IPC")) {
    settings.shares_memory = std::string(ipc) != "no";
  }
  if (const char* mode = std::getenv("OXBOW_REHEARSAL_MODE")) settings.mode = ModeNamed(mode);
  if (const char* log = std::getenv("OXBOW_REHEARSAL_LOG")) settings.log_directory = log;
  return settings;
}

}  // namespace

Settings& TheSettings() {
  static Settings settings = FromEnvironment();
  return settings;
}

}  // namespace oxbow::rehearsal
