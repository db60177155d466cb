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

// The cells at one moment. A video that is over shows its last frame.
std::vector<GridCell> CellsAt(const std::vector<FilmCell>& cells, size_t frame, int side) {
  std::vector<GridCell> shown;
  shown.reserve(cells.size());
  for (const FilmCell& cell : cells) {
    const Image8& image = cell.frames[std::min(frame, cell.frames.size() - 1)];
    shown.push_back({.image = Shrink(image, side), .frame = cell.border, .label = cell.label});
  }
  return shown;
}

GridShape GridShapeOf(const std::vector<FilmCell>& cells) {
  GridShape shape{.cells = static_cast<int>(cells.size())};
  for (const FilmCell& cell : cells) {
    OXBOW_CHECK(!cell.frames.empty()) << "a cell without frames";
    shape.width = std::max(shape.width, cell.frames.front().width);
    shape.height = std::max(shape.height, cell.frames.front().height);
    shape.framed = shape.framed || cell.border.has_value();
    shape.labelled = shape.labelled || !cell.label.empty();
  }
  return shape;
}

int Scaled(int length, int side, int longer) {
  return std::max(1, static_cast<int>((int64_t{length} * side + longer / 2) / longer));
}

// The longest side of pictures at which the grid has at most `pixels_max` pixels; 1 if none has.
int FittingSide(const GridShape& shape, const GridOptions& options, int64_t pixels_max) {
  const int longer = std::max(shape.width, shape.height);
  int fits = 1, too_long = longer + 1;
  while (too_long - fits > 1) {
    const int side = fits + (too_long - fits) / 2;
    GridShape smaller = shape;
    smaller.width = Scaled(shape.width, side, longer);
    smaller.height = Scaled(shape.height, side, longer);
    (GridPixels(smaller, options) <= pixels_max ? fits : too_long) = side;
  }
  return fits;
}

// The part of `source` pixels that pixel `i` of `count` covers.
struct Span {
  Span(int i, int count, int source)
      : begin(double{1} * i * source / count),
        end(double{1} * (i + 1) * source / count),
        first(static_cast<int>(begin)),
        last(std::min(source - 1, static_cast<int>(end))) {}
  // How much of source pixel `at` is in it.
  float Share(int at) const {
    return static_cast<float>(std::max(0.0, std::min(at + 1.0, end) - std::max(at + 0.0, begin)));
  }
  double begin, end;
  int first, last;
};

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

Image8 Shrink(const Image8& image, int side) {
  const int longer = std::max(image.width, image.height);
  if (side >= longer) return image;
  Image8 result{
      Scaled(image.width, side, longer), Scaled(image.height, side, longer), image.channels, {}};
  const auto channels = static_cast<size_t>(image.channels);
  const size_t row_values = static_cast<size_t>(image.width) * channels;
  result.pixels.reserve(static_cast<size_t>(result.width) * result.height * channels);
  std::vector<float> row(row_values);
  for (int top = 0; top < result.height; ++top) {
    const Span rows(top, result.height, image.height);
    std::fill(row.begin(), row.end(), 0.0F);
    for (int y = rows.first; y <= rows.last; ++y) {
      const uint8_t* const source = &image.pixels[static_cast<size_t>(y) * row_values];
      const float share = rows.Share(y);
      for (size_t i = 0; i < row_values; ++i) row[i] += share * static_cast<float>(source[i]);
    }
    for (int left = 0; left < result.width; ++left) {
      const Span columns(left, result.width, image.width);
      const auto area = static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
      for (size_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (int x = columns.first; x <= columns.last; ++x) {
          sum += columns.Share(x) * row[static_cast<size_t>(x) * channels + c];
        }
        result.pixels.push_back(static_cast<uint8_t>(std::min(255.0F, sum / area + 0.5F)));
      }
    }
  }
  return result;
}

Film FilmGrid(const std::vector<FilmCell>& cells, const GridOptions& options, int64_t pixels_max) {
  size_t longest = 1;
  for (const FilmCell& cell : cells) longest = std::max(longest, cell.frames.size());
  const size_t every = (longest + kSheetFramesMax - 1) / kSheetFramesMax;
  const size_t count = (longest + every - 1) / every;
  const int64_t frame_max = pixels_max / static_cast<int64_t>(count);
  const GridShape shape = GridShapeOf(cells);
  GridOptions fitting = options;
  fitting.scale = GridScale(shape, options);
  while (fitting.scale > 1 && GridPixels(shape, fitting) > frame_max) --fitting.scale;
  const int side = FittingSide(shape, fitting, frame_max);
  Film film;
  film.time.numerator = static_cast<uint16_t>(every);
  for (size_t frame = 0; frame < longest; frame += every) {
    film.frames.push_back(Grid(CellsAt(cells, frame, side), fitting));
  }
  return film;
}

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
