// SPDX-License-Identifier: Apache-2.0
// Streams, events and the order in which kernels run.
//
// A kernel belongs to the stream that was current when it was launched. Streams of a device that
// runs late do nothing until somebody waits: for the stream, for an event, for the device, or for a
// value. Then they do what was asked for and nothing more. So a result that is read without waiting
// for it is not there yet, every time.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace oxbow::rehearsal {

using Task = std::function<void()>;

// Per thread, as CUDA's.
c10::Device CurrentDevice();
void SetCurrentDevice(c10::DeviceIndex device);
c10::Stream CurrentStream(c10::DeviceIndex device);
// Returns the stream that was current on that device.
c10::Stream ExchangeStream(c10::Stream stream);
c10::Stream NewStream(c10::DeviceIndex device);

// Runs the task after those that were enqueued on this stream before: now, unless the device runs
// late or this thread captures a graph.
void Enqueue(const c10::Stream& stream, Task task);

// Runs what the stream, or every stream of the device, has to do. Throws what a kernel threw, and
// where this thread captures a graph: nothing has run that could be waited for.
void Synchronize(const c10::Stream& stream);
void SynchronizeDevice(c10::DeviceIndex device);
bool IsIdle(const c10::Stream& stream);

// A point in a stream's work.
struct Event {
  c10::Stream stream;
  uint64_t tasks = 0;  // That the stream had been given.
};
Event RecordEvent(const c10::Stream& stream);
void BlockOn(const Event& event, const c10::Stream& stream);
void SynchronizeEvent(const Event& event);
bool IsDone(const Event& event);

}  // namespace oxbow::rehearsal
