// SPDX-License-Identifier: Apache-2.0
// Calls into c10d: exceptions become statuses, and a call that may block for ever is given up on.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace oxbow::parallel {

// Runs `call`; what it throws becomes kUnavailable with the first line of the message.
absl::Status Caught(const std::function<absl::Status()>& call);

// Runs `call` as Caught does, on a thread of its own, and waits for it at most `timeout`. After
// that it returns kDeadlineExceeded with `what` and leaves the thread behind, so `call` must own
// all that it touches. (Reading a store blocks without limit while the store's host is stopped.)
// `cancelled`, if not null, ends the wait with kCancelled soon after it has become true.
absl::Status CallWithin(absl::Duration timeout, const std::string& what,
                        std::function<absl::Status()> call,
                        const std::atomic<bool>* cancelled = nullptr);

}  // namespace oxbow::parallel
