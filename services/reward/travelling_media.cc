// SPDX-License-Identifier: Apache-2.0
#include "services/reward/travelling_media.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "io/image.h"
#include "run/rewards.h"

namespace oxbow::reward {

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

}  // namespace oxbow::reward
