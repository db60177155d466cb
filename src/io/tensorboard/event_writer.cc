// SPDX-License-Identifier: Apache-2.0
#include "io/tensorboard/event_writer.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/checksum.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;

void AppendLittleEndian(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

uint32_t MaskedCrc32c(std::string_view bytes) { return MaskCrc32c(Crc32c(bytes)); }

// More is not kept for a disk that cannot be written.
constexpr size_t kWaitingBytesMax = size_t{16} << 20;

// Field numbers of tensorboard/compat/proto/{event,summary,tensor,tensor_shape,types}.proto.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr int kStatus = 1, kStatusStart = 1;
}
namespace summary {
constexpr int kValue = 1;
}
namespace value {
constexpr int kTag = 1, kSimpleValue = 2, kImage = 4, kTensor = 8, kMetadata = 9;
}
namespace image {
constexpr int kHeight = 1, kWidth = 2, kColorspace = 3, kEncoded = 4, kRgb = 3;
}
namespace metadata {
constexpr int kPluginData = 1, kPluginName = 1, kContent = 2, kDataClass = 4, kTensorClass = 2;
}
namespace tensor {
constexpr int kDtype = 1, kShape = 2, kStringValue = 8, kTypeFloat = 1, kTypeString = 7;
constexpr int kDimension = 2, kDimensionSize = 1;
}  // namespace tensor

// tensorboard/plugins/hparams/plugin_data.proto, protobuf's map entries and struct.proto.
namespace hparams {
constexpr int kStart = 3, kValues = 1, kGroup = 4, kStartSeconds = 5;
constexpr int kKey = 1, kValue = 2, kNumber = 2, kText = 3;
}  // namespace hparams

WireMessage At(EventTime time) {
  WireMessage message;
  message.Double(event::kWallTime, time.unix_seconds);
  if (time.step != 0) message.Integer(event::kStep, time.step);  // proto3 leaves zeros out.
  return message;
}

std::string SummaryEvent(EventTime time, const WireMessage& content) {
  return FrameRecord(At(time).Message(event::kSummary, content).bytes());
}

// A rank-one tensor of strings under the plugin that shows it.
WireMessage StringsValue(const std::string& tag, const char* plugin, int data_class,
                         const std::vector<std::string_view>& strings) {
  const WireMessage size =
      WireMessage().Integer(tensor::kDimensionSize, static_cast<int64_t>(strings.size()));
  WireMessage content;
  content.Integer(tensor::kDtype, tensor::kTypeString)
      .Message(tensor::kShape, WireMessage().Message(tensor::kDimension, size));
  for (const std::string_view text : strings) content.Bytes(tensor::kStringValue, text);
  const WireMessage plugin_data = WireMessage().Bytes(metadata::kPluginName, plugin);
  const WireMessage description = WireMessage()
                                      .Message(metadata::kPluginData, plugin_data)
                                      .Integer(metadata::kDataClass, data_class);
  return WireMessage()
      .Bytes(value::kTag, tag)
      .Message(value::kTensor, content)
      .Message(value::kMetadata, description);
}

std::filesystem::path FreePath(const std::filesystem::path& directory, const EventFileName& name) {
  for (int n = 0;; ++n) {
    std::filesystem::path path =
        directory / absl::StrFormat("events.out.tfevents.%010d.%s.%d.%d", name.unix_seconds,
                                    name.host, name.process_id, n);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return path;
  }
}

}  // namespace

std::string FrameRecord(std::string_view payload) {
  std::string out;
  out.reserve(payload.size() + kLengthBytes + 2 * kCrcBytes);
  AppendLittleEndian(out, payload.size(), kLengthBytes);
  AppendLittleEndian(out, MaskedCrc32c(out), kCrcBytes);
  out += payload;
  AppendLittleEndian(out, MaskedCrc32c(payload), kCrcBytes);
  return out;
}

void WireMessage::Varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
  bytes_ += static_cast<char>(value);
}

void WireMessage::Tag(int field, int wire_type) {
  Varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}

WireMessage& WireMessage::Integer(int field, int64_t value) {
  Tag(field, kVarint);
  Varint(static_cast<uint64_t>(value));
  return *this;
}

WireMessage& WireMessage::Double(int field, double value) {
  Tag(field, kFixed64);
  AppendLittleEndian(bytes_, std::bit_cast<uint64_t>(value), sizeof value);
  return *this;
}

WireMessage& WireMessage::Float(int field, float value) {
  Tag(field, kFixed32);
  AppendLittleEndian(bytes_, std::bit_cast<uint32_t>(value), sizeof value);
  return *this;
}

WireMessage& WireMessage::Bytes(int field, std::string_view value) {
  Tag(field, kLengthDelimited);
  Varint(value.size());
  bytes_ += value;
  return *this;
}

absl::Status EventWriter::Add(const std::string& record) {
  const size_t before = waiting_.size();
  waiting_ += record;
  const absl::Status status = WriteWaiting();
  if (!status.ok() && waiting_.size() > kWaitingBytesMax) waiting_.resize(before);
  return status;
}

absl::Status EventWriter::WriteWaiting() {
  if (!file_.has_value()) {
    const std::filesystem::path path = FreePath(directory_, name_);
    OXBOW_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
    WireMessage first;
    first.Double(event::kWallTime, static_cast<double>(name_.unix_seconds))
        .Bytes(event::kFileVersion, "brain.Event:2");
    waiting_.insert(0, FrameRecord(first.bytes()));
    file_ = std::move(file);
    path_ = path;
  }
  OXBOW_RETURN_IF_ERROR(file_->Append(waiting_, /*sync=*/false));
  waiting_.clear();
  return absl::OkStatus();
}

absl::Status EventWriter::AddWithOthers(const std::string& record) {
  if (file_.has_value()) return Add(record);
  waiting_ += record;
  return absl::OkStatus();
}

absl::Status EventWriter::Restart(EventTime time) {
  const WireMessage start = WireMessage().Integer(session_log::kStatus, session_log::kStatusStart);
  return AddWithOthers(FrameRecord(At(time).Message(event::kSessionLog, start).bytes()));
}

absl::Status EventWriter::Scalars(EventTime time, const std::map<std::string, double>& values) {
  if (values.empty()) return absl::OkStatus();
  WireMessage content;
  for (const auto& [tag, scalar] : values) {
    content.Message(summary::kValue, WireMessage()
                                         .Bytes(value::kTag, tag)
                                         .Float(value::kSimpleValue, static_cast<float>(scalar)));
  }
  return Add(SummaryEvent(time, content));
}

absl::Status EventWriter::Image(EventTime time, const std::string& tag, const EncodedImage& image) {
  const WireMessage encoded = WireMessage()
                                  .Integer(image::kHeight, image.height)
                                  .Integer(image::kWidth, image.width)
                                  .Integer(image::kColorspace, image::kRgb)
                                  .Bytes(image::kEncoded, image.bytes);
  const WireMessage content = WireMessage().Message(
      summary::kValue, WireMessage().Bytes(value::kTag, tag).Message(value::kImage, encoded));
  return Add(SummaryEvent(time, content));
}

absl::Status EventWriter::HyperParameters(EventTime time, const std::string& group,
                                          const std::map<std::string, HyperParameter>& values) {
  WireMessage start;
  for (const auto& [name, held] : values) {
    WireMessage one;
    if (const auto* number = std::get_if<double>(&held)) one.Double(hparams::kNumber, *number);
    if (const auto* text = std::get_if<std::string>(&held)) one.Bytes(hparams::kText, *text);
    start.Message(hparams::kValues,
                  WireMessage().Bytes(hparams::kKey, name).Message(hparams::kValue, one));
  }
  start.Bytes(hparams::kGroup, group).Double(hparams::kStartSeconds, time.unix_seconds);
  const WireMessage plugin =
      WireMessage()
          .Bytes(metadata::kPluginName, "hparams")
          .Bytes(metadata::kContent, WireMessage().Message(hparams::kStart, start).bytes());
  // A value must have a tensor: the package writes an empty one, too.
  const WireMessage nothing =
      WireMessage()
          .Integer(tensor::kDtype, tensor::kTypeFloat)
          .Message(tensor::kShape, WireMessage().Message(tensor::kDimension, WireMessage()));
  const WireMessage content = WireMessage().Message(
      summary::kValue,
      WireMessage()
          .Bytes(value::kTag, "_hparams_/session_start_info")
          .Message(value::kTensor, nothing)
          .Message(value::kMetadata, WireMessage().Message(metadata::kPluginData, plugin)));
  return AddWithOthers(SummaryEvent(time, content));
}

absl::Status EventWriter::Text(EventTime time, const std::string& tag, std::string_view markdown) {
  const WireMessage content = WireMessage().Message(
      summary::kValue, StringsValue(tag, "text", metadata::kTensorClass, {markdown}));
  return AddWithOthers(SummaryEvent(time, content));
}

}  // namespace oxbow::io
