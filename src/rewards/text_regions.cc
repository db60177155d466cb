// SPDX-License-Identifier: Apache-2.0
#include "rewards/text_regions.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rewards/box_mask.h"

namespace oxbow::rewards {
namespace {

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
