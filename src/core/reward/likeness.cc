// SPDX-License-Identifier: Apache-2.0
#include "core/reward/likeness.h"

#include <cmath>

#include "base/check.h"

namespace oxbow::reward {
namespace {

constexpr double kFullRange = 255;

int64_t SquaresOf(const Image8& a, const Image8& b) {
  OXBOW_CHECK(a.pixels.size() == b.pixels.size())
      << "images of " << a.pixels.size() << " and " << b.pixels.size() << " bytes";
  int64_t squares = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    const int difference = a.pixels[i] - b.pixels[i];
    squares += static_cast<int64_t>(difference) * difference;
  }
  return squares;
}

}  // namespace

double DistanceOf(const std::vector<Image8>& a, const std::vector<Image8>& b) {
  OXBOW_CHECK(a.size() == b.size()) << "videos of " << a.size() << " and " << b.size() << " frames";
  int64_t squares = 0;
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    squares += SquaresOf(a[i], b[i]);
    count += a[i].pixels.size();
  }
  if (count == 0) return 0;
  return std::sqrt(static_cast<double>(squares) / static_cast<double>(count)) / kFullRange;
}

std::vector<Likeness> LikenessOf(const std::vector<std::vector<Image8>>& members, double radius) {
  const size_t n = members.size();
  std::vector<double> distance(n, 0);
  std::vector<size_t> near(n, 1);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) {
      const double d = DistanceOf(members[i], members[j]);
      distance[i] += d;
      distance[j] += d;
      if (d >= radius) continue;
      ++near[i];
      ++near[j];
    }
  }
  std::vector<Likeness> likeness;
  for (size_t i = 0; i < n; ++i) {
    likeness.push_back({.mean_distance = n > 1 ? distance[i] / static_cast<double>(n - 1) : 0,
                        .duplicate_share = static_cast<double>(near[i]) / static_cast<double>(n)});
  }
  return likeness;
}

}  // namespace oxbow::reward
