// SPDX-License-Identifier: Apache-2.0
#include "services/reward/score_call.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "io/image.h"
#include "run/rewards.h"
#include "services/reward/score_messages.h"

namespace oxbow::reward {
namespace {

using Write = std::function<bool(const v1::ScoreRequest&, bool)>;

// One request: the heads of all its media, the pixels of those that fit into the message, and the
// others in pieces. False if `write` was.
bool WriteRequest(const ScoreCall& call, absl::Span<const size_t> images, uint32_t every,
                  v1::ScoreRequest request, bool last, const Write& write) {
  uint64_t room = kMessagePixelsMax;
  std::vector<size_t> later;
  for (const size_t i : images) {
    v1::ScoreItem& item = *request.add_items();
    item.set_item(i);
    *item.mutable_image() = call.media.Head(i, every);
    const uint64_t bytes = call.media.bytes(i, every);
    if (bytes <= room) {
      item.mutable_image()->set_pixels(call.media.Bytes(i, every, 0, bytes));
      room -= bytes;
    } else {
      item.mutable_image()->set_pixels_size(bytes);
      later.push_back(i);
    }
  }
  if (!write(request, last && later.empty())) return false;
  for (const size_t i : later) {
    const uint64_t bytes = call.media.bytes(i, every);
    for (uint64_t at = 0; at < bytes; at += kMessagePixelsMax) {
      v1::ScoreRequest piece;
      v1::ScoreItem& item = *piece.add_items();
      item.set_item(i);
      item.mutable_image()->set_pixels(
          call.media.Bytes(i, every, at, std::min(kMessagePixelsMax, bytes - at)));
      const bool ends = i == later.back() && bytes - at <= kMessagePixelsMax;
      if (!write(piece, last && ends)) return false;
    }
  }
  return true;
}

// The images and rewards of the batch for which `open` is true of their outcome (nullptr: none), or
// nothing if there are none. A whole group stays one.
template <typename Predicate>
std::optional<ScoreBatch> Part(ScoreCall& call, const ScoreBatch& batch, Predicate open)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(call.mutex) {
  ScoreBatch part{.images = {},
                  .rewards = {},
                  .whole_group = batch.whole_group,
                  .frames_every = batch.frames_every};
  std::set<size_t> images;
  for (const std::string& reward : batch.rewards) {
    bool some = false;
    for (const size_t i : batch.images) {
      const auto outcome = call.outcomes[i].find(reward);
      if (!open(outcome == call.outcomes[i].end() ? nullptr : &outcome->second)) continue;
      images.insert(i);
      some = true;
    }
    if (some) part.rewards.push_back(reward);
  }
  if (images.empty()) return std::nullopt;
  part.images.assign(images.begin(), images.end());
  if (batch.whole_group) part.images = batch.images;
  return part;
}

}  // namespace

TravellingMedia::TravellingMedia(std::vector<Frames> media, v1::PictureTransport transport)
    : media_(std::move(media)), transport_(transport), files_(new File[media_.size()]) {
  for (const Frames& frames : media_) {
    OXBOW_CHECK(!frames.empty()) << "a medium without frames";
    for (const Image8& frame : frames) {
      OXBOW_CHECK(frame.pixels.size() == frames.front().pixels.size()) << "frames of two sizes";
    }
  }
}

MediumSize TravellingMedia::SizeOf(size_t medium) const {
  return {.frame_bytes = media_[medium].front().pixels.size(), .frames = media_[medium].size()};
}

std::vector<MediumSize> TravellingMedia::sizes() const {
  std::vector<MediumSize> sizes;
  for (size_t i = 0; i < media_.size(); ++i) sizes.push_back(SizeOf(i));
  return sizes;
}

bool TravellingMedia::IsEncoded(size_t medium) const {
  // A medium that is no picture is for the server to refuse.
  return media_[medium].size() == 1 && io::IsValid(media_[medium].front()) &&
         (transport_ == v1::PICTURE_TRANSPORT_PNG || transport_ == v1::PICTURE_TRANSPORT_JPEG);
}

const std::string& TravellingMedia::FileOf(size_t medium) const {
  File& file = files_[medium];
  absl::call_once(file.once, [&] {
    const Image8& picture = media_[medium].front();
    file.bytes = transport_ == v1::PICTURE_TRANSPORT_PNG
                     ? io::EncodePng(picture)
                     : io::EncodeJpeg(picture, run::kTransportJpegQuality);
  });
  return file.bytes;
}

uint64_t TravellingMedia::bytes(size_t medium, uint32_t every) const {
  if (IsEncoded(medium)) return FileOf(medium).size();
  return SizeOf(medium).bytes_sent(every);
}

v1::Image TravellingMedia::Head(size_t medium, uint32_t every) const {
  const Image8& first = media_[medium].front();
  v1::Image head;
  head.set_width(first.width);
  head.set_height(first.height);
  head.set_channels(first.channels);
  head.set_frames(static_cast<uint32_t>(SizeOf(medium).frames_sent(every)));
  if (every > 1 && media_[medium].size() > 1) head.set_frames_every(every);
  if (IsEncoded(medium)) {
    head.set_encoding(transport_ == v1::PICTURE_TRANSPORT_PNG ? "png" : "jpeg");
  }
  return head;
}

std::string TravellingMedia::Bytes(size_t medium, uint32_t every, uint64_t offset,
                                   uint64_t count) const {
  if (IsEncoded(medium)) return FileOf(medium).substr(offset, count);
  std::string bytes;
  bytes.reserve(count);
  const uint64_t frame_bytes = media_[medium].front().pixels.size();
  while (bytes.size() < count) {
    const uint64_t at = offset + bytes.size();
    const std::vector<uint8_t>& pixels = media_[medium][at / frame_bytes * every].pixels;
    const uint64_t from = at % frame_bytes;
    const uint64_t part = std::min(count - bytes.size(), frame_bytes - from);
    bytes.append(reinterpret_cast<const char*>(pixels.data()) + from, part);
  }
  return bytes;
}

void WriteBatch(const ScoreCall& call, const ScoreBatch& batch, size_t batch_max,
                const Write& write) {
  const size_t count = batch.whole_group ? batch.images.size() : std::max<size_t>(1, batch_max);
  v1::ScoreRequest request;
  *request.mutable_prompt() = call.prompt;
  for (const std::string& name : batch.rewards) request.add_rewards(name);
  request.set_group(call.group);
  request.set_group_complete(batch.images.size() == call.media.size() &&
                             batch.images.size() <= count);
  const absl::Span<const size_t> images = batch.images;
  for (size_t first = 0; first < images.size(); first += count) {
    const bool last = images.size() - first <= count;
    if (!WriteRequest(call, images.subspan(first, count), batch.frames_every, request, last, write))
      return;
  }
}

bool IsUnscorable(const absl::Status& status) { return !status.ok() && !IsAbsence(status); }

bool IsFinal(const absl::Status& status) { return absl::IsInvalidArgument(status); }

std::optional<ScoreBatch> Unanswered(ScoreCall& call, const ScoreBatch& batch) {
  absl::MutexLock lock(&call.mutex);
  return Part(call, batch,
              [](const absl::StatusOr<double>* outcome) { return outcome == nullptr; });
}

std::optional<ScoreBatch> Reopen(ScoreCall& call, const ScoreBatch& batch) {
  absl::MutexLock lock(&call.mutex);
  auto part = Part(call, batch, [](const absl::StatusOr<double>* outcome) {
    return outcome != nullptr && IsUnscorable(outcome->status()) && !IsFinal(outcome->status());
  });
  if (!part.has_value()) return std::nullopt;
  for (const size_t i : part->images) {
    for (const std::string& reward : part->rewards) {
      const auto outcome = call.outcomes[i].find(reward);
      if (outcome == call.outcomes[i].end()) continue;
      const absl::Status& status = outcome->second.status();
      if (batch.whole_group || (!status.ok() && !IsFinal(status))) call.outcomes[i].erase(outcome);
    }
  }
  return part;
}

void Settle(ScoreCall& call, const ScoreBatch& batch, const absl::Status& status) {
  absl::MutexLock lock(&call.mutex);
  for (const size_t i : batch.images) {
    for (const std::string& reward : batch.rewards) call.outcomes[i].try_emplace(reward, status);
  }
}

}  // namespace oxbow::reward
