// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/streams.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "tests/rehearsal/capture.h"
#include "tests/rehearsal/settings.h"

namespace oxbow::rehearsal {
namespace {

struct Queue {
  std::deque<Task> tasks;
  uint64_t given = 0, done = 0;
};

struct Queues {
  // Held while tasks run: a task may free memory, which enqueues.
  std::recursive_mutex mutex;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Queue> queues;

  Queue& Of(const c10::Stream& stream) { return queues[{stream.device_index(), stream.id()}]; }
  void RunUntil(const c10::Stream& stream, uint64_t given) {
    Queue& queue = Of(stream);
    while (queue.done < given && !queue.tasks.empty()) {
      const Task task = std::move(queue.tasks.front());
      queue.tasks.pop_front();
      ++queue.done;
      task();
    }
  }
};

Queues& All() {
  static auto* const all = new Queues;  // Tensors may outlive every static object.
  return *all;
}

std::atomic<c10::StreamId> newest_stream = 0;
thread_local c10::DeviceIndex current_device = 0;
thread_local std::map<c10::DeviceIndex, c10::StreamId> current_streams;

c10::Stream StreamOf(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, {c10::kCUDA, device}, id);
}

bool RunsLate() { return TheSettings().mode == Mode::kLate; }

void RefuseWhileCapturing() {
  TORCH_CHECK(!IsCapturing(),
              "CUDA error: operation not permitted when stream is capturing: the host waits for a "
              "stream, or for a value of a tensor");
}

}  // namespace

c10::Device CurrentDevice() { return {c10::kCUDA, current_device}; }
void SetCurrentDevice(c10::DeviceIndex device) { current_device = device; }

c10::Stream CurrentStream(c10::DeviceIndex device) {
  const auto found = current_streams.find(device);
  return StreamOf(device, found == current_streams.end() ? 0 : found->second);
}

c10::Stream ExchangeStream(c10::Stream stream) {
  const c10::Stream before = CurrentStream(stream.device_index());
  current_streams[stream.device_index()] = stream.id();
  return before;
}

c10::Stream NewStream(c10::DeviceIndex device) { return StreamOf(device, ++newest_stream); }

void Enqueue(const c10::Stream& stream, Task task) {
  if (AddToCapture(task)) return;
  if (!RunsLate()) return task();
  const std::scoped_lock lock(All().mutex);
  Queue& queue = All().Of(stream);
  queue.tasks.push_back(std::move(task));
  ++queue.given;
}

void Synchronize(const c10::Stream& stream) {
  RefuseWhileCapturing();
  SynchronizeEvent(RecordEvent(stream));
}

void SynchronizeDevice(c10::DeviceIndex device) {
  RefuseWhileCapturing();
  const std::scoped_lock lock(All().mutex);
  for (auto& [key, queue] : All().queues) {
    if (key.first == device) All().RunUntil(StreamOf(device, key.second), queue.given);
  }
}

bool IsIdle(const c10::Stream& stream) { return IsDone(RecordEvent(stream)); }

Event RecordEvent(const c10::Stream& stream) {
  const std::scoped_lock lock(All().mutex);
  return {stream, All().Of(stream).given};
}

void BlockOn(const Event& event, const c10::Stream& stream) {
  if (!RunsLate() || event.stream == stream) return;
  Enqueue(stream, [event] { All().RunUntil(event.stream, event.tasks); });
}

void SynchronizeEvent(const Event& event) {
  const std::scoped_lock lock(All().mutex);
  All().RunUntil(event.stream, event.tasks);
}

bool IsDone(const Event& event) {
  const std::scoped_lock lock(All().mutex);
  return All().Of(event.stream).done >= event.tasks;
}

}  // namespace oxbow::rehearsal
