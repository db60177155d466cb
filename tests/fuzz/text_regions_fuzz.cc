// SPDX-License-Identifier: Apache-2.0
// For any map and any list of characters: boxes lie on the picture, each line can be cut out of it,
// and what is read of the lines has characters of the list.
//
//   width and height of the map in units of 8, of the picture, then its bytes; the JSON
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "core/reward/line_decoder.h"
#include "rewards/text_regions.h"
#include "tests/fuzz/bytes_input.h"

namespace oxbow {
namespace {

void FuzzMap(std::string_view bytes) {
  if (bytes.size() < 5) return;
  const auto byte = [&](size_t i) { return static_cast<int>(static_cast<uint8_t>(bytes[i])); };
  const reward::PixelSize size{8 * (1 + byte(0) % 12), 8 * (1 + byte(1) % 12)};
  const Image8 picture{
      1 + byte(2), 1 + byte(3), 3,
      std::vector<uint8_t>(static_cast<size_t>(3 * (1 + byte(2)) * (1 + byte(3))))};
  std::vector<float> map(static_cast<size_t>(size.width * size.height));
  for (size_t i = 0; i < map.size(); ++i) {
    map[i] = static_cast<float>(byte(4 + i % (bytes.size() - 4))) / 255;
  }
  const auto boxes = rewards::FindTextBoxes(map, size, {picture.width, picture.height});
  if (!boxes.ok()) return;
  OXBOW_CHECK(boxes->size() <= rewards::kCandidatesMax) << boxes->size();
  for (const reward::TextBox& box : *boxes) {
    for (const reward::BoxPoint& corner : box) {
      OXBOW_CHECK(corner.x >= 0 && corner.x <= picture.width) << corner.x;
      OXBOW_CHECK(corner.y >= 0 && corner.y <= picture.height) << corner.y;
    }
    const auto line = rewards::CutLine(picture, box);
    if (!line) continue;
    OXBOW_CHECK(line->pixels.size() == static_cast<size_t>(line->width * line->height * 3));
    const reward::LineWidths widths = reward::LineWidthsOf({line->width, line->height});
    OXBOW_CHECK(widths.resized > 0 && widths.resized <= widths.padded);
    OXBOW_CHECK(widths.padded <= reward::kLineWidthMax) << widths.padded;
  }
}

void FuzzCharacters(std::string_view json) {
  const int64_t classes = std::count(json.begin(), json.end(), ',') + 1;
  const auto characters = reward::ParseCharacters(json, classes);
  if (!characters.ok()) return;
  OXBOW_CHECK(std::ssize(*characters) == classes);
  std::vector<int64_t> steps;
  size_t bytes = 0;
  for (int64_t i = 0; i < classes; ++i) steps.push_back(i);
  for (size_t i = 1; i < characters->size(); ++i) bytes += (*characters)[i].size();
  const std::vector<float> sure(steps.size(), 1);
  OXBOW_CHECK(reward::DecodeLine(steps, sure, *characters).text.size() == bytes) << bytes;
}

}  // namespace
}  // namespace oxbow

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = oxbow::fuzz::Messages(oxbow::fuzz::Text(data, size));
  if (!parts.empty()) oxbow::FuzzMap(parts[0]);
  if (parts.size() > 1) oxbow::FuzzCharacters(parts[1]);
  return 0;
}
