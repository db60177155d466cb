#include "tasks/compose_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tasks/digits_reading.h"

namespace oxbow::tasks {

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
