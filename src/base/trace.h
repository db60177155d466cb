// SPDX-License-Identifier: Apache-2.0
// The group or step that a call and its log lines belong to, across processes: W3C trace context.
//
//   traceparent: 00-<trace id, 32 hex digits>-<span id, 16 hex digits>-01
//
// Ids are computed from what is traced; nothing is drawn at random. The first half of a trace id
// comes from the run, so all traces of a run begin with the same digits:
//
//   trace id = H(run id) . mix(H(run id) ^ (2 group + 1))    span id = mix(lease)
//   trace id = H(run id) . mix(H(run id) ^ (2 step + 2))     span id = mix(step)
//
// The thread that handles a group or step holds a TraceScope. Calls made within the scope carry the
// trace (rpc/channel.h); log lines written within it have it in the field `trace` (log.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace oxbow {

struct Trace {
  uint64_t high = 0;  // Trace id, high and low half.
  uint64_t low = 0;
  uint64_t span = 0;
  bool operator==(const Trace&) const = default;
};

// The trace of one attempt at a group. `run_id` is the learner's; it changes with each start.
Trace TraceOfGroup(std::string_view run_id, GroupId group, LeaseId lease);

// The trace of the learner's work for one of its steps.
Trace TraceOfStep(std::string_view run_id, LearnerStep step);

std::string TraceId(const Trace& trace);      // 32 hex digits.
std::string Traceparent(const Trace& trace);  // The header's value.

// Nothing if it is not a traceparent, if its version is not 00, or if it is all zero.
std::optional<Trace> ParseTraceparent(std::string_view header);

// The trace of this thread; nothing outside of any scope.
std::optional<Trace> CurrentTrace();

// Makes `trace` the trace of this thread until the scope ends; then the previous one is restored.
// Without a trace it changes nothing.
class TraceScope {
 public:
  explicit TraceScope(const std::optional<Trace>& trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  const std::optional<Trace> before_;
};

}  // namespace oxbow
