// SPDX-License-Identifier: Apache-2.0
#include "services/reward/score_writer.h"

#include <algorithm>
#include <vector>

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

}  // namespace

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

}  // namespace oxbow::reward
