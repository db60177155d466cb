// SPDX-License-Identifier: Apache-2.0
#include "base/trace.h"

#include <charconv>

#include "absl/strings/str_format.h"
#include "base/philox.h"
#include "base/sha256.h"

namespace oxbow {
namespace {

constexpr size_t kLength = 55;  // "00-" 32 "-" 16 "-" 2

std::optional<Trace>& Current() {
  thread_local std::optional<Trace> current;
  return current;
}

// An id of all zeros means "none" in a traceparent.
uint64_t NotZero(uint64_t value) { return value == 0 ? 1 : value; }

Trace Make(std::string_view run_id, uint64_t what, uint64_t span) {
  const uint64_t run = Fingerprint64(run_id);
  return {.high = run, .low = NotZero(Mix64(run ^ what)), .span = NotZero(Mix64(span))};
}

// Lower-case digits only, as the standard requires.
std::optional<uint64_t> Hex(std::string_view digits) {
  if (digits.find_first_not_of("0123456789abcdef") != digits.npos) return std::nullopt;
  uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

}  // namespace

Trace TraceOfGroup(std::string_view run_id, GroupId group, LeaseId lease) {
  return Make(run_id, 2 * group.value + 1, lease.value);
}

Trace TraceOfStep(std::string_view run_id, LearnerStep step) {
  return Make(run_id, 2 * step.value + 2, step.value);
}

std::string TraceId(const Trace& trace) {
  return absl::StrFormat("%016x%016x", trace.high, trace.low);
}

std::string Traceparent(const Trace& trace) {
  return absl::StrFormat("00-%016x%016x-%016x-01", trace.high, trace.low, trace.span);
}

std::optional<Trace> ParseTraceparent(std::string_view header) {
  if (header.size() != kLength || header.substr(0, 3) != "00-" || header[35] != '-' ||
      header[52] != '-') {
    return std::nullopt;
  }
  const auto high = Hex(header.substr(3, 16));
  const auto low = Hex(header.substr(19, 16));
  const auto span = Hex(header.substr(36, 16));
  if (!high || !low || !span || !Hex(header.substr(53))) return std::nullopt;
  if ((*high | *low) == 0 || *span == 0) return std::nullopt;
  return Trace{*high, *low, *span};
}

std::optional<Trace> CurrentTrace() { return Current(); }

TraceScope::TraceScope(const std::optional<Trace>& trace) : before_(Current()) {
  if (trace.has_value()) Current() = trace;
}

TraceScope::~TraceScope() { Current() = before_; }

}  // namespace oxbow
