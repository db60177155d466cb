// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/capture.h"

#include <c10/util/Exception.h>

#include <optional>
#include <utility>

namespace oxbow::rehearsal {
namespace {

struct Capture {
  uint64_t pool = 0;
  Tape tape;
};

thread_local std::optional<Capture> capture;

}  // namespace

bool IsCapturing() { return capture.has_value(); }
uint64_t CapturePool() { return capture ? capture->pool : 0; }

void BeginCapture(uint64_t pool) {
  TORCH_CHECK(!capture, "CUDA error: this thread captures a graph already");
  capture = Capture{.pool = pool, .tape = {}};
}

Tape EndCapture() {
  TORCH_CHECK(capture, "CUDA error: this thread captures no graph");
  Tape tape = std::move(capture->tape);
  capture.reset();
  return tape;
}

bool AddToCapture(const Task& task) {
  if (!capture) return false;
  capture->tape.push_back(task);
  return true;
}

}  // namespace oxbow::rehearsal
