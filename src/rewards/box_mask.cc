// SPDX-License-Identifier: Apache-2.0
#include "rewards/box_mask.h"

#include <algorithm>
#include <opencv2/imgproc.hpp>
#include <optional>
#include <utility>

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

}  // namespace oxbow::rewards
