// SPDX-License-Identifier: Apache-2.0
#include "tasks/compose_reading.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "tasks/digits_reading.h"

namespace oxbow::tasks {
namespace {

constexpr int kCellValues = kCellSide * kCellSide * kComposeChannels;
constexpr int kObjectErrorUnit = kCellValues * 255;  // The integer that stands for an error of 1.

int ObjectError(std::span<const uint8_t> pixels, int cell, const std::optional<Object>& object) {
  int error = 0;
  for (int row = 0; row < kCellSide; ++row) {
    for (int column = 0; column < kCellSide; ++column) {
      const bool covered = object && ShapeCovers(object->shape, row, column);
      const int y = cell / 2 * kCellSide + row;
      const int x = cell % 2 * kCellSide + column;
      for (int channel = 0; channel < kComposeChannels; ++channel) {
        const int pixel = pixels[(y * kComposeSide + x) * kComposeChannels + channel];
        error += covered && ColourHas(object->colour, channel) ? 255 - pixel : pixel;
      }
    }
  }
  return error;
}

ComposeCell ReadObjectCell(std::span<const uint8_t> pixels, int cell) {
  int best = ObjectError(pixels, cell, std::nullopt);
  std::optional<Object> found;
  for (int i = 0; i < kObjectCount; ++i) {
    const Object object{i / kShapeCount, i % kShapeCount};
    const int error = ObjectError(pixels, cell, object);
    if (error < best) {
      best = error;
      found = object;
    }
  }
  ComposeCell read{.dark = !found, .object = found};
  read.error = static_cast<double>(best) / kObjectErrorUnit;
  // An integer comparison: .05 of 48960 is exactly 2448.
  if (best * 100 > kCellErrorPercentMax * kObjectErrorUnit) {
    read.dark = false;
    read.object.reset();
  }
  return read;
}

// Share of two wanted values that are in `found`; each found value counts once.
double ShareFound(std::array<int, 2> wanted, std::vector<int> found) {
  int count = 0;
  for (const int value : wanted) {
    const auto at = std::find(found.begin(), found.end(), value);
    if (at == found.end()) continue;
    found.erase(at);
    ++count;
  }
  return count / 2.0;
}

}  // namespace

ComposeReading ReadCompose(std::span<const uint8_t> pixels) {
  OXBOW_CHECK(pixels.size() == kComposeChannels * kComposePixels) << pixels.size() << " values";
  ComposeReading reading;
  for (int cell = 0; cell < kCellCount; ++cell) reading[cell] = ReadObjectCell(pixels, cell);
  return reading;
}

SceneCredit CreditOf(const ComposeReading& reading, const Scene& wanted) {
  std::vector<int> shapes;
  std::vector<int> colours;
  int objects = 0;
  for (const ComposeCell& cell : reading) {
    objects += cell.dark ? 0 : 1;
    if (!cell.object) continue;
    shapes.push_back(cell.object->shape);
    colours.push_back(cell.object->colour);
  }
  SceneCredit credit;
  credit.count = objects == 2 ? 1 : 0;
  credit.shapes = ShareFound({wanted.first.shape, wanted.second.shape}, std::move(shapes));
  credit.colours = ShareFound({wanted.first.colour, wanted.second.colour}, std::move(colours));
  credit.relation = PlaceTaken(reading, wanted) ? 1 : 0;
  return credit;
}

std::optional<int> PlaceTaken(const ComposeReading& reading, const Scene& wanted) {
  const auto places = PlacesOf(wanted.relation);
  for (size_t i = 0; i < places.size(); ++i) {
    if (reading[places[i].first].object == wanted.first &&
        reading[places[i].second].object == wanted.second) {
      return static_cast<int>(i);
    }
  }
  return std::nullopt;
}

void ComposeCounter::Add(const Scene& wanted, std::span<const uint8_t> pixels) {
  const ComposeReading reading = ReadCompose(pixels);
  const SceneCredit credit = CreditOf(reading, wanted);
  ++sums_.images;
  sums_.reward += credit.reward();
  reward_squares_ += credit.reward() * credit.reward();
  sums_.strict += credit.strict() ? 1 : 0;
  sums_.count += credit.count;
  sums_.shapes += credit.shapes;
  sums_.colours += credit.colours;
  sums_.relation += credit.relation;
  sums_.speckle += Speckle(pixels);
  for (const ComposeCell& cell : reading) sums_.unreadable += !cell.dark && !cell.object ? 1 : 0;
  const std::optional<int> place = PlaceTaken(reading, wanted);
  if (place && credit.strict()) ++places_[static_cast<size_t>(wanted.relation)][*place];
}

ComposeReport ComposeCounter::Report() const {
  ComposeReport report = sums_;
  if (report.images == 0) return report;
  const auto count = static_cast<double>(report.images);
  for (double* const mean : {&report.reward, &report.strict, &report.count, &report.shapes,
                             &report.colours, &report.relation, &report.speckle}) {
    *mean /= count;
  }
  report.unreadable /= count * kCellCount;
  const double variance = std::max(0.0, reward_squares_ / count - report.reward * report.reward);
  report.reward_stderr = std::sqrt(variance / count);
  report.place_balance = PlaceBalance();
  return report;
}

double ComposeCounter::PlaceBalance() const {
  double sum = 0;
  int seen = 0;
  for (const auto& counts : places_) {
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    if (total == 0) continue;
    ++seen;
    sum += 4.0 * static_cast<double>(*std::min_element(counts.begin(), counts.end())) /
           static_cast<double>(total);
  }
  return seen == 0 ? 0 : sum / seen;
}

}  // namespace oxbow::tasks
