// SPDX-License-Identifier: Apache-2.0
// Writes what TensorBoard reads: scalars, images and text as events.out.tfevents.* in a run's
// directory.
//
// Each event is appended with one write, so that a live TensorBoard sees it at once and a crash
// tears at most the last one, which readers skip. Every start of a run writes a new file, once it
// has numbers or pictures: a start that fails before leaves none. What could not be written is
// written with the next event.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/file.h"

namespace oxbow::io {

// The bytes of TensorBoard's event files: records (the TFRecord format), each with a protobuf
// message as its payload.
//
//   u64 LE length | u32 LE masked CRC of the length | payload | u32 LE masked CRC of the payload
//
// with the masked CRC-32C of base/checksum.h.
std::string FrameRecord(std::string_view payload);

// The little of the protobuf wire format that writing events takes, so that io needs no protobuf. A
// message is built field by field, in the order of the calls.
class WireMessage {
 public:
  // int32, int64, enum and bool fields; negative numbers take ten bytes as protobuf wants.
  WireMessage& Integer(int field, int64_t value);
  WireMessage& Double(int field, double value);
  WireMessage& Float(int field, float value);
  // string, bytes and packed fields.
  WireMessage& Bytes(int field, std::string_view value);
  WireMessage& Message(int field, const WireMessage& value) { return Bytes(field, value.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  void Tag(int field, int wire_type);
  void Varint(uint64_t value);

  std::string bytes_;
};

// When and where an event belongs. `unix_seconds` is the wall clock's, as TensorBoard shows dates.
struct EventTime {
  double unix_seconds = 0;
  int64_t step = 0;
};

struct EventFileName {
  int64_t unix_seconds = 0;
  std::string host;
  int process_id = 0;
};

struct EncodedImage {
  int width = 0;
  int height = 0;
  std::string bytes;  // PNG or JPEG.
};

using HyperParameter = std::variant<double, std::string>;

// Owned by one thread.
class EventWriter {
 public:
  // Writes events.out.tfevents.<seconds>.<host>.<pid>.<n> with the first n that is free.
  EventWriter(std::filesystem::path directory, EventFileName name)
      : directory_(std::move(directory)), name_(std::move(name)) {}

  // Tells readers that the run was restarted: what older files hold from `time.step` on is void.
  absl::Status Restart(EventTime time);

  // One event with all values. Not-a-number values are written; TensorBoard marks them.
  absl::Status Scalars(EventTime time, const std::map<std::string, double>& values);

  absl::Status Image(EventTime time, const std::string& tag, const EncodedImage& image);
  absl::Status Text(EventTime time, const std::string& tag, std::string_view markdown);

  // The values that TensorBoard's tab of hyperparameters shows of this run beside others. Runs of
  // one `group` are one row there.
  absl::Status HyperParameters(EventTime time, const std::string& group,
                               const std::map<std::string, HyperParameter>& values);

  const std::filesystem::path& path() const { return path_; }  // Empty: there is no file yet.

 private:
  absl::Status Add(const std::string& record);  // Makes the file.
  absl::Status WriteWaiting();
  absl::Status AddWithOthers(const std::string& record);  // Waits for it.

  std::filesystem::path directory_;
  EventFileName name_;
  std::optional<AppendFile> file_;
  std::filesystem::path path_;
  std::string waiting_;  // For the file, or for its disk.
};

}  // namespace oxbow::io
