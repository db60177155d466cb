// SPDX-License-Identifier: Apache-2.0
// Kernels, operations, traffic and memory at published sizes, without a GPU, arithmetic or memory:
// the project's own networks and trainer on a dry device.
//
//   dry_run                  prints a table
//   dry_run --only TEXT      prints the rows whose names have this text
//   dry_run --host           prints what a sampling step costs the host beside the network
//   dry_run --check FILE.md  fails, with that of the file's table, where a figure differs by more
//                            than 3 %, or `oxbow validate` is wrong by more than 15 % of a peak, of
//                            decoding by more than 20 % of what that takes beside the weights and
//                            more than 1 GB too high
//   dry_run --write FILE.md  replaces the file's table
// Promise: `validate` knows the memory of a GPU.
// Promise: `validate` knows the memory of decoding.
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/rehearsal/dry_case.h"
#include "tests/rehearsal/dry_decoders.h"
#include "tests/rehearsal/reserved_memory.h"
#include "tests/rehearsal/settings.h"

namespace oxbow::rehearsal {
namespace {

constexpr double kTolerance = 0.03;
constexpr double kPlanTolerance = 0.15;
// The values of fused layers are counted as a share of all (exported_architecture.cc).
constexpr double kPlanToleranceOfFusedSteps = 0.22;
// Copies inside a convolution of several images are not seen.
constexpr double kPlanToleranceOfDecoding = 0.2;
constexpr double kSpareGbOfDecoding = 1;
// Where neither trained nor frozen weights are on the GPU, nearly all is activations.
constexpr double kPlanToleranceOfActivations = 0.45;
constexpr const char* kHeader =
    "| case | held GB | peak GB | traffic GB | TFLOP | kernels | host MB | waits | validate GB |\n"
    "|---|---|---|---|---|---|---|---|---|";

struct Figure {
  double value;
  double rounding;  // Half a unit of the last digit that Row prints.
};

std::vector<Figure> FiguresOf(const DryFigures& f, double planned) {
  return {{f.held_gb, 0.005}, {f.peak_gb, 0.005}, {f.traffic_gb, 0.05}, {f.tflop, 0.05},
          {f.kernels, 0.5},   {f.host_mb, 0.05},  {f.waits, 0.5},       {planned, 0.005}};
}

std::string Row(const std::string& name, const DryFigures& f, double planned) {
  char line[200];
  std::snprintf(line, sizeof(line),
                "| %s | %.2f | %.2f | %.1f | %.1f | %.0f | %.1f | %.4g | %.2f |", name.c_str(),
                f.held_gb, f.peak_gb, f.traffic_gb, f.tflop, f.kernels, f.host_mb, f.waits,
                planned);
  return line;
}

std::vector<std::string> LinesOf(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

bool IsTable(const std::string& line) { return line.starts_with("|"); }
bool IsRule(const std::string& line) { return line.starts_with("|--"); }

// Rows of the file's table by their case.
std::map<std::string, std::string> RowsOf(const std::string& path) {
  std::map<std::string, std::string> rows;
  for (const std::string& line : LinesOf(path)) {
    if (IsTable(line) && !IsRule(line)) rows[line.substr(2, line.find(' ', 2) - 2)] = line;
  }
  return rows;
}

bool Agree(const std::string& row, const DryFigures& figures, double planned) {
  std::istringstream words(row);
  std::string bar, name;
  words >> bar >> name;
  for (const auto& [value, rounding] : FiguresOf(figures, planned)) {
    double kept = 0;
    if (!(words >> bar >> kept)) return false;
    if (std::abs(value - kept) > kTolerance * kept + rounding) return false;
  }
  return true;
}

// The first lines of tables in the file become the header and the rows, the others go.
void WriteTable(const std::string& path, const std::vector<std::string>& rows) {
  const std::vector<std::string> lines = LinesOf(path);
  std::ofstream out(path);
  bool written = false;
  for (const std::string& line : lines) {
    if (!IsTable(line)) {
      out << line << "\n";
    } else if (!std::exchange(written, true)) {
      out << kHeader << "\n";
      for (const std::string& row : rows) out << row << "\n";
    }
  }
}

// CPU time of the thread that samples; how busy the machine is changes it.
int PrintHostTime() {
  TheSettings().mode = Mode::kDry;
  at::set_num_threads(1);
  constexpr int kTimes = 9;
  std::vector<double> times;
  for (int i = 0; i < kTimes; ++i) times.push_back(HostMsOfSamplingStep());
  std::sort(times.begin(), times.end());
  std::printf("a sampling step of 24 latents of 512 px: %.2f ms (%.2f to %.2f)\n",
              times[kTimes / 2], times.front(), times.back());
  return 0;
}

struct Result {
  std::string name;
  DryFigures figures;
  double planned_gb = 0;  // By `oxbow validate`.
  double judged_gb = 0;   // The plan may be wrong by `tolerance` of this.
  double tolerance = kPlanTolerance;
  double spare_gb = 0;  // A plan that is too high by no more is good, too.

  std::string row() const { return Row(name, figures, planned_gb); }
  bool IsPlanned() const {
    const double above = planned_gb - figures.peak_gb;
    return std::abs(above) <= tolerance * judged_gb || (above > 0 && above <= spare_gb);
  }
};

Result Rehearsed(const DryCase& work) {
  Result result{.name = work.name, .figures = Rehearse(work), .planned_gb = PlannedGb(work)};
  result.judged_gb = result.figures.peak_gb;
  if (work.trains && work.trained == model::Trained::kLora && !work.recompute) {
    result.tolerance = kPlanToleranceOfFusedSteps;
  }
  if (work.offloads_weights) result.tolerance = kPlanToleranceOfActivations;
  return result;
}

// Weights are known; what is judged is what decoding takes beside them.
Result Rehearsed(const DryDecoding& work) {
  Result result{.name = work.name,
                .figures = Rehearse(work),
                .tolerance = kPlanToleranceOfDecoding,
                .spare_gb = kSpareGbOfDecoding};
  const double held = result.figures.held_gb;
  result.planned_gb = held + static_cast<double>(PlannedBytes(work)) / 1e9;
  result.judged_gb = result.figures.peak_gb - held;
  return result;
}

// Rehearses every case whose name has `text` and gives it to `take`.
template <typename Take>
void ForEachResult(const std::string& text, const Take& take) {
  const auto wanted = [&](const auto& work) { return work.name.find(text) != std::string::npos; };
  for (const DryCase& work : DryCases()) {
    if (wanted(work)) take(Rehearsed(work));
  }
  for (const DryDecoding& work : DryDecodings()) {
    if (wanted(work)) take(Rehearsed(work));
  }
}

int Run(std::string_view mode, const std::string& path) {
  TheSettings().mode = Mode::kDry;
  at::set_num_threads(1);
  const bool check = mode == "--check";
  auto budgets = check ? RowsOf(path) : std::map<std::string, std::string>();
  budgets.erase("case");
  std::vector<std::string> rows;
  std::printf("%s\n", kHeader);
  int passed = 0, failed = 0;
  ForEachResult(mode == "--only" ? path : "", [&](const Result& result) {
    rows.push_back(result.row());
    std::printf("%s\n", rows.back().c_str());
    std::fflush(stdout);
    if (!check) return;
    const auto budget = budgets.find(result.name);
    const std::string row = budget == budgets.end() ? "no budget" : budget->second;
    const bool good = Agree(row, result.figures, result.planned_gb) && result.IsPlanned();
    ++(good ? passed : failed);
    if (!good) std::printf("%s   <- %s\n", row.c_str(), path.c_str());
    if (budget != budgets.end()) budgets.erase(budget);
  });
  for (const auto& [name, row] : budgets) {
    ++failed;
    std::printf("%s   <- %s, and no case has this name\n", row.c_str(), path.c_str());
  }
  if (mode == "--write") WriteTable(path, rows);
  if (check) std::printf("dry: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace oxbow::rehearsal

int main(int argc, char** argv) {
  oxbow::rehearsal::ReserveLargeTensors();
  if (argc == 1) return oxbow::rehearsal::Run("", "");
  if (argc == 2 && argv[1] == std::string_view("--host")) return oxbow::rehearsal::PrintHostTime();
  if (argc == 3) return oxbow::rehearsal::Run(argv[1], argv[2]);
  std::fprintf(stderr, "dry_run [--host | --only TEXT | --check FILE.md | --write FILE.md]\n");
  return 2;
}
