// SPDX-License-Identifier: Apache-2.0
#include "io/film.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr std::string_view kFilmSignature("\x89PNG\r\n\x1a\n", 8);
constexpr size_t kChunkFrame = 12;  // Length, type and checksum around the data.
constexpr size_t kHeaderBytes = 13;
constexpr size_t kControlBytes = 26;

void AppendNumber(std::string& bytes, uint32_t value, int size = 4) {
  for (int shift = 8 * (size - 1); shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> shift));
  }
}

uint32_t NumberAt(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

uint32_t CrcOf(std::string_view bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

struct Chunk {
  std::string_view type;
  std::string_view data;
};

void AppendChunk(std::string& bytes, std::string_view type, std::string_view data) {
  AppendNumber(bytes, static_cast<uint32_t>(data.size()));
  const size_t checked = bytes.size();
  bytes.append(type).append(data);
  AppendNumber(bytes, CrcOf(std::string_view(bytes).substr(checked)));
}

// All chunks of a PNG. kDataLoss if one is cut, or its checksum does not fit.
absl::StatusOr<std::vector<Chunk>> ChunksOf(std::string_view bytes) {
  if (!bytes.starts_with(kFilmSignature)) {
    return absl::InvalidArgumentError(absl::StrCat("not a PNG: ", bytes.size(), " bytes"));
  }
  bytes.remove_prefix(kFilmSignature.size());
  std::vector<Chunk> chunks;
  while (!bytes.empty()) {
    const uint64_t size = bytes.size() < kChunkFrame ? UINT32_MAX : NumberAt(bytes, 0);
    if (bytes.size() < kChunkFrame || size > bytes.size() - kChunkFrame) {
      return absl::DataLossError("truncated PNG: a chunk is cut");
    }
    if (CrcOf(bytes.substr(4, size + 4)) != NumberAt(bytes, size + 8)) {
      return absl::DataLossError("corrupt PNG: the checksum of a chunk");
    }
    chunks.push_back({.type = bytes.substr(4, 4), .data = bytes.substr(8, size)});
    bytes.remove_prefix(size + kChunkFrame);
  }
  if (chunks.empty() || chunks.front().type != "IHDR" ||
      chunks.front().data.size() != kHeaderBytes || chunks.back().type != "IEND") {
    return absl::DataLossError("corrupt PNG: no header or no end");
  }
  return chunks;
}

// fcTL: sequence number, size, place, time; dispose and blend 0: a frame stays until the next, and
// replaces all of it.
std::string Control(uint32_t sequence, const Image8& frame, FrameTime time) {
  std::string data;
  AppendNumber(data, sequence);
  AppendNumber(data, static_cast<uint32_t>(frame.width));
  AppendNumber(data, static_cast<uint32_t>(frame.height));
  data.append(8, '\0');
  AppendNumber(data, time.numerator, 2);
  AppendNumber(data, time.denominator, 2);
  data.append(2, '\0');
  return data;
}

// The chunks of a PNG that EncodePng made, up to its end.
std::vector<Chunk> OwnChunks(std::string_view png) {
  auto chunks = ChunksOf(png);
  OXBOW_CHECK(chunks.ok()) << chunks.status();
  chunks->pop_back();
  return *std::move(chunks);
}

std::string Numbered(uint32_t sequence, std::string_view data) {
  std::string bytes;
  AppendNumber(bytes, sequence);
  return bytes.append(data);
}

// A frame's own PNG: the header of the film with that frame's data.
struct FramePng {
  std::string bytes;
  FrameTime time;
};

// Puts the frames' PNGs together from the chunks of an animated one.
absl::StatusOr<std::vector<FramePng>> FramesOf(const std::vector<Chunk>& chunks) {
  const std::string_view header = chunks.front().data;
  std::vector<FramePng> frames;
  uint32_t sequence = 0;
  for (const Chunk& chunk : chunks) {
    const bool control = chunk.type == "fcTL", later = chunk.type == "fdAT";
    if (control || later) {
      if (chunk.data.size() < 4 || NumberAt(chunk.data, 0) != sequence++) {
        return absl::DataLossError("corrupt animated PNG: its frames are out of order");
      }
    }
    if (control) {
      const bool whole = chunk.data.size() == kControlBytes &&
                         chunk.data.substr(4, 8) == header.substr(0, 8) &&
                         chunk.data.substr(12, 8) == std::string(8, '\0') &&
                         chunk.data.substr(24, 2) == std::string(2, '\0');
      if (!whole) {
        return absl::InvalidArgumentError(
            "animated PNG has frames that are parts of the picture: only whole ones are read");
      }
      const uint32_t time = NumberAt(chunk.data, 20);
      frames.push_back({.bytes = std::string(kFilmSignature),
                        .time = {.numerator = static_cast<uint16_t>(time >> 16),
                                 .denominator = static_cast<uint16_t>(time)}});
      AppendChunk(frames.back().bytes, "IHDR", header);
    } else if (later || (chunk.type == "IDAT" && !frames.empty())) {
      if (frames.empty()) return absl::DataLossError("corrupt animated PNG: data of no frame");
      AppendChunk(frames.back().bytes, "IDAT", later ? chunk.data.substr(4) : chunk.data);
    }
  }
  for (FramePng& frame : frames) AppendChunk(frame.bytes, "IEND", "");
  return frames;
}

}  // namespace

std::string EncodeFilm(const Film& film) {
  OXBOW_CHECK(!film.frames.empty()) << "a film without frames";
  if (film.frames.size() == 1) return EncodePng(film.frames.front());
  std::string bytes(kFilmSignature);
  uint32_t sequence = 0;
  for (size_t i = 0; i < film.frames.size(); ++i) {
    const Image8& frame = film.frames[i];
    const Image8& first = film.frames.front();
    OXBOW_CHECK(frame.width == first.width && frame.height == first.height &&
                frame.channels == first.channels)
        << "frames of two sizes: " << frame.width << "x" << frame.height;
    const std::string png = EncodePng(frame);
    bool begun = false;
    for (const Chunk& chunk : OwnChunks(png)) {
      const bool data = chunk.type == "IDAT";
      if (data && !std::exchange(begun, true)) {
        if (i == 0) {
          std::string animation;
          AppendNumber(animation, static_cast<uint32_t>(film.frames.size()));
          AppendNumber(animation, 0);
          AppendChunk(bytes, "acTL", animation);
        }
        AppendChunk(bytes, "fcTL", Control(sequence++, frame, film.time));
      }
      if (i == 0) {
        AppendChunk(bytes, chunk.type, chunk.data);
      } else if (data) {
        AppendChunk(bytes, "fdAT", Numbered(sequence++, chunk.data));
      }
    }
  }
  AppendChunk(bytes, "IEND", "");
  return bytes;
}

absl::StatusOr<Film> DecodeFilm(std::string_view bytes, int64_t pixels_max) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<Chunk> chunks, ChunksOf(bytes));
  uint32_t announced = 0;
  for (const Chunk& chunk : chunks) {
    if (chunk.type == "acTL" && chunk.data.size() == 8) announced = NumberAt(chunk.data, 0);
  }
  Film film;
  if (announced == 0) {
    OXBOW_ASSIGN_OR_RETURN(Image8 picture,
                           DecodePng(bytes, std::min(pixels_max, kDecodedPixelsMax)));
    film.frames.push_back(std::move(picture));
    return film;
  }
  OXBOW_ASSIGN_OR_RETURN(const std::vector<FramePng> frames, FramesOf(chunks));
  if (frames.size() != announced) {
    return absl::DataLossError(absl::StrCat("corrupt animated PNG: ", frames.size(),
                                            " frames, announced are ", announced));
  }
  int64_t left = pixels_max;
  for (const FramePng& frame : frames) {
    OXBOW_ASSIGN_OR_RETURN(Image8 image, DecodePng(frame.bytes, std::min(left, kDecodedPixelsMax)));
    left -= int64_t{image.width} * image.height;
    film.frames.push_back(std::move(image));
  }
  film.time = frames.front().time;
  return film;
}

absl::StatusOr<Film> DecodePictureOrFilm(std::string_view bytes, int64_t pixels_max) {
  if (bytes.starts_with(kFilmSignature)) return DecodeFilm(bytes, pixels_max);
  OXBOW_ASSIGN_OR_RETURN(Image8 picture,
                         DecodeImage(bytes, std::min(pixels_max, kDecodedPixelsMax)));
  Film film;
  film.frames.push_back(std::move(picture));
  return film;
}

}  // namespace oxbow::io
