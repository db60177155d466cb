// SPDX-License-Identifier: Apache-2.0
#include "core/reward/text_boxes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace oxbow::reward {
namespace {

constexpr int kShortSideMin = 64;
constexpr int kLongSideMax = 4000;
constexpr int kStride = 32;
constexpr int kSmallSides = 64;  // Width and height together.
constexpr int kLineWidth = 320;
constexpr double kArcTolerance = 0.25;  // A round corner, in pixels.
constexpr float kSameLine = 10;

// Python's round: to even between two.
int ToStride(int side) {
  return std::max(static_cast<int>(std::nearbyint(static_cast<double>(side) / kStride)) * kStride,
                  kStride);
}

PixelSize Times(PixelSize size, double ratio) {
  return {static_cast<int>(size.width * ratio), static_cast<int>(size.height * ratio)};
}

struct Vector {
  double x = 0;
  double y = 0;
};

// Clipper's rounding: half away from zero.
BoxPoint RoundedPixel(Vector at, Vector along, double distance) {
  return {static_cast<float>(std::round(at.x + along.x * distance)),
          static_cast<float>(std::round(at.y + along.y * distance))};
}

double DistanceOf(const TextBox& box, double ratio) {
  double area = 0, length = 0;
  for (size_t i = 0; i < box.size(); ++i) {
    const BoxPoint a = box[(i + 3) % 4], b = box[i];
    area += static_cast<double>(a.x) * b.y - static_cast<double>(a.y) * b.x;
    const float dx = b.x - a.x, dy = b.y - a.y;
    length += std::sqrt(dx * dx + dy * dy);
  }
  return std::abs(area) / 2 * ratio / length;
}

// How far a corner turns at a time.
struct Turn {
  explicit Turn(double distance) {
    const double tolerance = std::min(kArcTolerance, distance * kArcTolerance);
    const double steps = std::min(std::numbers::pi / std::acos(1 - tolerance / distance),
                                  distance * std::numbers::pi);
    sine = std::sin(2 * std::numbers::pi / steps);
    cosine = std::cos(2 * std::numbers::pi / steps);
    per_radian = steps / (2 * std::numbers::pi);
  }
  double sine, cosine, per_radian;
};

// The arc around `at` from one edge's normal to the next one's.
void AddCorner(Vector at, Vector before, Vector after, double distance, const Turn& turn,
               std::vector<BoxPoint>& outline) {
  double sine = before.x * after.y - after.x * before.y;
  const double cosine = before.x * after.x + before.y * after.y;
  if (std::abs(sine * distance) < 1 && cosine > 0) {  // Hardly a corner.
    outline.push_back(RoundedPixel(at, before, distance));
    return;
  }
  sine = std::clamp(sine, -1.0, 1.0);
  const double angle = std::abs(std::atan2(sine, cosine));
  const int steps = std::max(static_cast<int>(std::round(turn.per_radian * angle)), 1);
  Vector normal = before;
  for (int i = 0; i < steps; ++i) {
    outline.push_back(RoundedPixel(at, normal, distance));
    normal = {normal.x * turn.cosine - turn.sine * normal.y,
              normal.x * turn.sine + normal.y * turn.cosine};
  }
  outline.push_back(RoundedPixel(at, after, distance));
}

bool Before(const TextBox& a, const TextBox& b) {
  return a[0].y < b[0].y || (a[0].y == b[0].y && a[0].x < b[0].x);
}

}  // namespace

DetectionSizes DetectionSizesOf(PixelSize picture) {
  PixelSize padded = picture;
  if (picture.width + picture.height < kSmallSides) {
    padded = {std::max(kStride, picture.width), std::max(kStride, picture.height)};
  }
  const int shorter = std::min(padded.width, padded.height);
  PixelSize size = padded;
  if (shorter < kShortSideMin) size = Times(padded, static_cast<double>(kShortSideMin) / shorter);
  const int longer = std::max(size.width, size.height);
  if (longer > kLongSideMax) size = Times(size, static_cast<double>(kLongSideMax) / longer);
  return {.padded = padded, .resized = {ToStride(size.width), ToStride(size.height)}};
}

LineWidths LineWidthsOf(PixelSize line) {
  const double ratio = static_cast<double>(line.width) / line.height;
  const double widest = std::max(static_cast<double>(kLineWidth) / kLineHeight, ratio);
  const int padded = std::min(static_cast<int>(kLineHeight * widest), kLineWidthMax);
  return {std::min(static_cast<int>(std::ceil(kLineHeight * ratio)), padded), padded};
}

TextBox InOrder(TextBox corners) {
  std::stable_sort(corners.begin(), corners.end(),
                   [](const BoxPoint& a, const BoxPoint& b) { return a.x < b.x; });
  const bool left = corners[1].y > corners[0].y, right = corners[3].y > corners[2].y;
  return {corners[left ? 0 : 1], corners[right ? 2 : 3], corners[right ? 3 : 2],
          corners[left ? 1 : 0]};
}

std::vector<BoxPoint> Unclipped(const TextBox& box, double ratio) {
  const double distance = DistanceOf(box, ratio);
  const Turn turn(distance);
  std::array<Vector, 4> points, normals;
  for (size_t i = 0; i < 4; ++i) points[i] = {std::trunc(box[i].x), std::trunc(box[i].y)};
  for (size_t i = 0; i < 4; ++i) {
    const Vector to = points[(i + 1) % 4];
    const double dx = to.x - points[i].x, dy = to.y - points[i].y;
    const double scale = 1 / std::sqrt(dx * dx + dy * dy);
    normals[i] = {dy * scale, -dx * scale};
  }
  std::vector<BoxPoint> outline;
  for (size_t i = 0; i < 4; ++i) {
    AddCorner(points[i], normals[(i + 3) % 4], normals[i], distance, turn, outline);
  }
  return outline;
}

TextBox Scaled(const TextBox& box, PixelSize from, PixelSize to) {
  const auto scaled = [](float value, int old_side, int side) {
    const double scale = static_cast<double>(side) / old_side;
    return static_cast<float>(std::clamp(std::nearbyint(value * scale), 0.0, 1.0 * side));
  };
  TextBox on;
  for (size_t i = 0; i < 4; ++i) {
    on[i] = {scaled(box[i].x, from.width, to.width), scaled(box[i].y, from.height, to.height)};
  }
  return on;
}

void SortForReading(std::vector<TextBox>& boxes) {
  std::stable_sort(boxes.begin(), boxes.end(), Before);
  for (size_t i = 1; i < boxes.size(); ++i) {
    for (size_t j = i; j > 0; --j) {
      const BoxPoint above = boxes[j - 1][0], here = boxes[j][0];
      if (std::abs(here.y - above.y) >= kSameLine || here.x >= above.x) break;
      std::swap(boxes[j - 1], boxes[j]);
    }
  }
}

}  // namespace oxbow::reward
