// SPDX-License-Identifier: Apache-2.0
#include "rewards/text_regions.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace oxbow::rewards {
namespace {

constexpr int kFraction = 16;  // Bits after the point.
constexpr int64_t kHalf = int64_t{1} << (kFraction - 1);

// Columns at rows from `top` to before `bottom`, moving by `step` a row, in 1 / 2^16 pixel.
struct Edge {
  int top = 0;
  int bottom = 0;
  int64_t column = 0;
  int64_t step = 0;

  int64_t ColumnAt(int row) const { return column + (row - top) * step; }
};

// Nothing for a level edge.
std::optional<Edge> EdgeBetween(cv::Point a, cv::Point b, cv::Size size) {
  if (a.y == b.y) return std::nullopt;
  const cv::Rect mask({0, 0}, size);
  cv::Point from = a, to = b;
  int64_t rounding = kHalf;
  if (!mask.contains(a) || !mask.contains(b)) {
    rounding = 0;
    cv::clipLine(size, from, to);
    if (from.y == to.y) from = a, to = b;
  }
  const int64_t step = (int64_t{to.x - from.x} << kFraction) / (to.y - from.y);
  const auto column = [&](cv::Point end, cv::Point seen) {
    return rounding + (int64_t{seen.x} << kFraction) + (end.y - seen.y) * step;
  };
  if (a.y < b.y) return Edge{a.y, b.y, column(a, from), step};
  return Edge{b.y, a.y, column(b, to), step};
}

void FillRow(cv::Mat& mask, int row, const std::vector<Edge>& edges) {
  std::vector<int64_t> columns;
  for (const Edge& edge : edges) {
    if (edge.top <= row && row < edge.bottom) columns.push_back(edge.ColumnAt(row));
  }
  std::sort(columns.begin(), columns.end());
  for (size_t i = 0; i + 1 < columns.size(); i += 2) {
    const int64_t first = std::max<int64_t>(columns[i] >> kFraction, 0);
    const int64_t last = std::min<int64_t>(columns[i + 1] >> kFraction, mask.cols - 1);
    for (int64_t x = first; x <= last; ++x) mask.at<uint8_t>(row, static_cast<int>(x)) = 1;
  }
}

using reward::BoxPoint;
using reward::PixelSize;
using reward::TextBox;

constexpr float kThreshold = 0.3f;
constexpr double kBoxThreshold = 0.6;
constexpr double kUnclipRatio = 1.5;
constexpr float kSideMin = 3;
constexpr double kTallRatio = 1.5;

struct Rectangle {
  TextBox box;
  float side = 0;  // The shorter one.
};

Rectangle RectangleAround(const std::vector<cv::Point>& points) {
  const cv::RotatedRect found = cv::minAreaRect(points);
  cv::Point2f corners[4];
  found.points(corners);
  TextBox box;
  for (size_t i = 0; i < 4; ++i) box[i] = {corners[i].x, corners[i].y};
  return {reward::InOrder(box), std::min(found.size.width, found.size.height)};
}

std::vector<cv::Point> WholePoints(absl::Span<const BoxPoint> points) {
  std::vector<cv::Point> whole;
  for (const BoxPoint& point : points) {
    whole.emplace_back(static_cast<int>(point.x), static_cast<int>(point.y));
  }
  return whole;
}

// The mean of the map inside a box.
double ScoreOf(const cv::Mat& map, const TextBox& box) {
  const auto [left, right] = std::minmax_element(
      box.begin(), box.end(), [](const BoxPoint& a, const BoxPoint& b) { return a.x < b.x; });
  const auto [top, bottom] = std::minmax_element(
      box.begin(), box.end(), [](const BoxPoint& a, const BoxPoint& b) { return a.y < b.y; });
  const auto within = [](float value, int side) {
    return std::clamp(static_cast<int>(value), 0, side - 1);
  };
  const int x = within(std::floor(left->x), map.cols), y = within(std::floor(top->y), map.rows);
  const cv::Rect around(x, y, within(std::ceil(right->x), map.cols) - x + 1,
                        within(std::ceil(bottom->y), map.rows) - y + 1);
  TextBox moved = box;
  for (BoxPoint& corner : moved) {
    corner = {corner.x - static_cast<float>(x), corner.y - static_cast<float>(y)};
  }
  std::vector<uint8_t> covered = BoxMask({around.width, around.height}, moved);
  const cv::Mat mask(around.size(), CV_8U, covered.data());
  return cv::mean(map(around), mask)[0];
}

// The box of a region in pixels of the map; nothing for what is too small or too improbable.
std::optional<TextBox> BoxOf(const cv::Mat& map, const std::vector<cv::Point>& region) {
  const Rectangle found = RectangleAround(region);
  if (found.side < kSideMin || ScoreOf(map, found.box) < kBoxThreshold) return std::nullopt;
  const Rectangle grown = RectangleAround(WholePoints(reward::Unclipped(found.box, kUnclipRatio)));
  if (grown.side < kSideMin + 2) return std::nullopt;
  return grown.box;
}

// OpenCV reads what it gets, and its types do not say so.
cv::Mat Seen(const Image8& picture) {
  return {picture.height, picture.width, CV_8UC(picture.channels),
          const_cast<uint8_t*>(picture.pixels.data())};
}

Image8 Copied(const cv::Mat& picture) {
  Image8 copy{
      .width = picture.cols, .height = picture.rows, .channels = picture.channels(), .pixels = {}};
  copy.pixels.assign(picture.datastart, picture.dataend);
  return copy;
}

float Distance(BoxPoint a, BoxPoint b) {
  const float dx = a.x - b.x, dy = a.y - b.y;
  return std::sqrt(dx * dx + dy * dy);
}

}  // namespace

std::vector<uint8_t> BoxMask(reward::PixelSize size, const reward::TextBox& corners) {
  std::vector<uint8_t> bytes(static_cast<size_t>(size.width) * size.height);
  cv::Mat mask(size.height, size.width, CV_8U, bytes.data());
  std::vector<cv::Point> points;
  for (const reward::BoxPoint& corner : corners) {
    points.emplace_back(static_cast<int>(corner.x), static_cast<int>(corner.y));
  }
  cv::polylines(mask, points, /*isClosed=*/true, 1);
  std::vector<Edge> edges;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto edge = EdgeBetween(points[(i + 3) % 4], points[i], mask.size());
    if (edge) edges.push_back(*edge);
  }
  for (int row = 0; row < mask.rows; ++row) FillRow(mask, row, edges);
  return bytes;
}

absl::StatusOr<std::vector<TextBox>> FindTextBoxes(absl::Span<const float> map, PixelSize size,
                                                   PixelSize picture) {
  const cv::Mat values(size.height, size.width, CV_32F, const_cast<float*>(map.data()));
  const cv::Mat bitmap = values > kThreshold;
  std::vector<std::vector<cv::Point>> regions;
  cv::findContours(bitmap, regions, cv::RETR_LIST, cv::CHAIN_APPROX_SIMPLE);
  if (regions.size() > kRegionsMax) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the text detector finds ", regions.size(), " regions, more than ", kRegionsMax,
        ", in a map of ", size.width, " x ", size.height, ": are these its weights?"));
  }
  regions.resize(std::min<size_t>(regions.size(), kCandidatesMax));
  std::vector<TextBox> boxes;
  for (const auto& region : regions) {
    const std::optional<TextBox> box = BoxOf(values, region);
    if (box) boxes.push_back(reward::Scaled(*box, size, picture));
  }
  reward::SortForReading(boxes);
  return boxes;
}

std::optional<Image8> CutLine(const Image8& picture, const TextBox& box) {
  const TextBox corners = RectangleAround(WholePoints(box)).box;
  const auto side = [&](size_t a, size_t b, size_t c, size_t d) {
    return static_cast<int>(
        std::max(Distance(corners[a], corners[b]), Distance(corners[c], corners[d])));
  };
  const int width = side(0, 1, 2, 3), height = side(0, 3, 1, 2);
  if (width < 1 || height < 1) return std::nullopt;
  const auto right = static_cast<float>(width), bottom = static_cast<float>(height);
  const cv::Point2f onto[] = {{0, 0}, {right, 0}, {right, bottom}, {0, bottom}};
  cv::Point2f from[4];
  for (size_t i = 0; i < 4; ++i) from[i] = {corners[i].x, corners[i].y};
  cv::Mat line;
  cv::warpPerspective(Seen(picture), line, cv::getPerspectiveTransform(from, onto), {width, height},
                      cv::INTER_CUBIC, cv::BORDER_REPLICATE);
  if (static_cast<double>(height) / width < kTallRatio) return Copied(line);
  cv::Mat turned;
  cv::rotate(line, turned, cv::ROTATE_90_COUNTERCLOCKWISE);
  return Copied(turned);
}

Image8 ResizeAsOpenCv(const Image8& picture, PixelSize size) {
  cv::Mat resized;
  cv::resize(Seen(picture), resized, {size.width, size.height}, 0, 0, cv::INTER_LINEAR);
  return Copied(resized);
}

}  // namespace oxbow::rewards
