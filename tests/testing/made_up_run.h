// SPDX-License-Identifier: Apache-2.0
// A run's files as a learner leaves them, for tests: metrics of a good run, and sheets.
#pragma once

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/file.h"
#include "io/evaluation_file.h"
#include "io/image.h"
#include "io/metrics_file.h"

namespace oxbow::io {

// Resembles a good run; look at its page in a browser after changing it.
inline std::string MadeUpMetrics(int steps = 100) {
  std::string metrics = FormatMetricsLine(0, 0.4,
                                          {{"eval/reward_mean", 0.52},
                                           {"eval/strict_mean", 0.13},
                                           {"eval/speckle_mean", 0.016},
                                           {"eval/minority_share", 0.5}});
  for (int step = 1; step <= steps; ++step) {
    const double t = 1.0 * step / steps, wave = std::sin(step * 1.7);
    std::map<std::string, double> line{
        {"train/reward_mean", 0.5 + 0.45 * (1 - std::exp(-4 * t)) + 0.015 * wave},
        {"train/reward_std", 0.3 - 0.2 * t},
        {"train/grad_norm", 0.3 + 0.05 * wave},
        {"train/reward_zero_std_ratio", 0.05 + 0.6 * t * t},
        {"train/clip_frac_total", 0.02 + 0.01 * wave * wave},
        {"train/clip_frac_fresh", 0.01 + 0.004 * wave},
        {"train/clip_frac_replay", step < 5 ? std::nan("") : 0.08 + 0.03 * wave},
        {"train/iw_mean", 0.97 + 0.02 * wave},
        {"train/iw_min", 0.7 + 0.1 * wave},
        {"train/iw_ess", 0.93},
        {"train/onpolicy_ratio_err", 0},
        {"train/kl_div", 2e-3 * t},
        {"buffer/size", std::min(512, step * 6)},
        {"buffer/staleness_mean", 3 * t},
        {"buffer/staleness_p95", 11 * t},
        {"throughput/samples_per_s", 400 + 20 * wave},
        {"time/step_s", 0.22},
        {"time/wait_s", 0.05},
        {"time/update_s", 0.14 + 0.01 * wave},
        {"time/publish_s", 0.03}};
    if (step % 10 == 0) {
      line["eval/reward_mean"] = 0.52 + 0.45 * (1 - std::exp(-4 * t));
      line["eval/strict_mean"] = 0.13 + 0.78 * (1 - std::exp(-3 * t));
      line["eval/speckle_mean"] = 0.016 + 0.02 * t;
      line["eval/minority_share"] = 0.5 * std::exp(-3 * t);
    }
    metrics += FormatMetricsLine(step, 0.4 + 0.22 * step, line);
  }
  return metrics;
}

// 64 pictures of 32 prompts, on a sheet; the share `right` of them is right. With `side` the
// pictures are squares of so many pixels and full of noise, as large as files of them can be.
inline void AddMadeUpSheet(const std::filesystem::path& run_dir, int step,
                           const std::string& caption, double right, int side = 0) {
  const auto directory = run_dir / "samples" / absl::StrFormat("step_%06d", step);
  std::filesystem::create_directories(directory);
  std::vector<GridCell> cells;
  std::vector<EvaluatedPicture> pictures;
  for (int i = 0; i < 64; ++i) {
    const bool good = i % 32 < 32 * right;
    Image8 picture{20, 8, 1, std::vector<uint8_t>(160, static_cast<uint8_t>(40 + 3 * i))};
    if (side > 0) picture = {side, side, 3, std::vector<uint8_t>(size_t{3} * side * side)};
    uint32_t noise = 747796405u * static_cast<uint32_t>(64 * step + i + 1);
    for (size_t k = 0; side > 0 && k < picture.pixels.size(); ++k) {
      noise = noise * 1664525u + 1013904223u;
      picture.pixels[k] = static_cast<uint8_t>(noise >> 24);
    }
    const int width = picture.width, height = picture.height;
    cells.push_back(
        {std::move(picture), good ? kRightColour : kWrongColour, absl::StrCat(100 + i % 32)});
    pictures.push_back({absl::StrCat("digits ", 100 + i % 32),
                        good ? 1 : 0.25,
                        good,
                        width,
                        height,
                        true,
                        {{"digits_ocr", good ? 1 : 0.25}}});
  }
  OXBOW_CHECK(WriteFileAtomically(directory / "eval.png", EncodePng(Grid(cells))).ok());
  OXBOW_CHECK(WriteFileAtomically(directory / "eval.txt", caption).ok());
  OXBOW_CHECK(WriteFileAtomically(directory / kEvaluationFile, FormatEvaluation(pictures)).ok());
}

}  // namespace oxbow::io
