// SPDX-License-Identifier: Apache-2.0
// A run's files as a learner leaves them, for tests: metrics of a good run, and pictures.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
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
#include "io/film.h"
#include "io/image.h"
#include "io/metrics_file.h"
#include "io/picture_file.h"
#include "tests/testing/photo_like.h"

namespace oxbow::io {

// Resembles a good run; look at its page in a browser after changing it.
inline std::string MadeUpMetrics(int steps = 100) {
  std::string metrics = FormatMetricsLine(0, 0.4,
                                          {{"eval/reward_mean", 0.52},
                                           {"eval/reward_digits_strict_mean", 0.13},
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
      line["eval/reward_digits_strict_mean"] = 0.13 + 0.78 * (1 - std::exp(-3 * t));
      line["eval/speckle_mean"] = 0.016 + 0.02 * t;
      line["eval/minority_share"] = 0.5 * std::exp(-3 * t);
    }
    metrics += FormatMetricsLine(step, 0.4 + 0.22 * step, line);
  }
  return metrics;
}

// Writes the files of an evaluation. Sets the sizes, files and noises of `pictures`.
inline void AddEvaluation(const std::filesystem::path& run_dir, int step,
                          const std::string& caption,
                          const std::vector<std::vector<Image8>>& videos,
                          std::vector<EvaluatedPicture> pictures) {
  const auto directory = run_dir / "samples" / absl::StrFormat("step_%06d", step);
  std::filesystem::create_directories(directory);
  std::vector<FilmCell> cells;
  for (size_t i = 0; i < videos.size(); ++i) {
    const PictureFile file = PictureFileOf(i, videos.size(), videos[i]);
    OXBOW_CHECK(WriteFileAtomically(directory / file.name, file.bytes).ok());
    pictures[i].picture = file.name;
    pictures[i].width = videos[i].front().width;
    pictures[i].height = videos[i].front().height;
    pictures[i].frames = static_cast<int>(videos[i].size());
    if (const auto film = FilmStripOf(i, videos.size(), videos[i])) {
      OXBOW_CHECK(WriteFileAtomically(directory / film->file.name, film->file.bytes).ok());
      pictures[i].film = film->file.name;
      pictures[i].film_frames = film->frames;
    }
    pictures[i].seed = 7;
    pictures[i].group = (uint64_t{1} << 63) + i;
    cells.push_back({.frames = videos[i], .label = absl::StrFormat("%03d", i)});
  }
  OXBOW_CHECK(WriteFileAtomically(directory / kEvaluationFile, FormatEvaluation(pictures)).ok());
  OXBOW_CHECK(WriteFileAtomically(directory / "eval.txt", caption).ok());
  OXBOW_CHECK(
      WriteFileAtomically(directory / "eval.png", EncodeFilm(FilmGrid(cells, {}, int64_t{1} << 18)))
          .ok());
}

// 64 pictures of 32 prompts; the share `right` of them is right. With `side` the pictures are
// squares of so many pixels and full of noise, as large as files of them can be.
inline void AddMadeUpSheet(const std::filesystem::path& run_dir, int step,
                           const std::string& caption, double right, int side = 0) {
  std::vector<std::vector<Image8>> images;
  std::vector<EvaluatedPicture> pictures;
  for (int i = 0; i < 64; ++i) {
    const bool good = i % 32 < 32 * right;
    Image8 picture{20, 8, 1, std::vector<uint8_t>(160, static_cast<uint8_t>(40 + 3 * i + step))};
    if (side > 0) picture = {side, side, 3, std::vector<uint8_t>(size_t{3} * side * side)};
    uint32_t noise = 747796405u * static_cast<uint32_t>(64 * step + i + 1);
    for (size_t k = 0; side > 0 && k < picture.pixels.size(); ++k) {
      noise = noise * 1664525u + 1013904223u;
      picture.pixels[k] = static_cast<uint8_t>(noise >> 24);
    }
    images.push_back({std::move(picture)});
    pictures.push_back({.prompt = absl::StrCat("digits ", 100 + i % 32),
                        .reward = good ? 1 : 0.25,
                        .right = good,
                        .rewards = {{"digits_ocr", good ? 1 : 0.25}}});
  }
  AddEvaluation(run_dir, step, caption, images, std::move(pictures));
}

// A long prompt in one of five scripts.
inline std::string LongPrompt(int i) {
  const char* const parts[] = {
      "a red fox reads a newspaper under an old oak while snow falls on the quiet village, ",
      "\xd1\x80\xd1\x8b\xd0\xb6\xd0\xb0\xd1\x8f \xd0\xbb\xd0\xb8\xd1\x81\xd0\xb0 "
      "\xd1\x87\xd0\xb8\xd1\x82\xd0\xb0\xd0\xb5\xd1\x82 "
      "\xd0\xb3\xd0\xb0\xd0\xb7\xd0\xb5\xd1\x82\xd1\x83 ",
      "\xe4\xb8\x80\xe5\x8f\xaa\xe7\xba\xa2\xe8\x89\xb2\xe7\x9a\x84\xe7\x8b\x90\xe7\x8b\xb8 ",
      "\xd8\xab\xd8\xb9\xd9\x84\xd8\xa8 \xd8\xa3\xd8\xad\xd9\x85\xd8\xb1 ",
      "\xf0\x9f\xa6\x8a caf\xc3\xa9 \xf0\x9f\x93\xb0 <b>&\"quoted\"</b> "};
  std::string prompt = absl::StrCat("no. ", i, ": ");
  for (int k = 0; k < 4; ++k) prompt += parts[i % 5];
  return prompt;
}

// Pictures as a run at a real size leaves them; no two prompts are the same.
inline void AddPhotos(const std::filesystem::path& run_dir, int step, int count, int side) {
  std::vector<Image8> few;
  std::vector<std::vector<Image8>> images;
  for (uint32_t i = 0; i < 2; ++i) {
    few.push_back(oxbow::testing::PhotoLike(side, side, i));
    for (uint8_t& pixel : few.back().pixels) {
      pixel = static_cast<uint8_t>(std::min(255, pixel + step / 2));
    }
  }
  std::vector<EvaluatedPicture> pictures;
  for (int i = 0; i < count; ++i) {
    images.push_back({few[static_cast<size_t>(i) % few.size()]});
    const double reward = 0.2 + 0.01 * i + 0.002 * step;
    pictures.push_back({.prompt = LongPrompt(i),
                        .reward = reward,
                        .rewards = {{"pickscore", reward}, {"sharpness", 1 - reward}}});
  }
  AddEvaluation(run_dir, step, absl::StrCat("held-out prompts, step ", step), images,
                std::move(pictures));
}

// Videos as a run of a video model leaves them: a light moves over a picture.
inline void AddVideos(const std::filesystem::path& run_dir, int step, int count, int width,
                      int height, int frames) {
  std::vector<std::vector<Image8>> videos;
  std::vector<EvaluatedPicture> pictures;
  for (int i = 0; i < count; ++i) {
    videos.emplace_back(static_cast<size_t>(frames),
                        oxbow::testing::PhotoLike(width, height, static_cast<uint32_t>(i % 4)));
    for (int k = 0; k < frames; ++k) {
      const int at = width * (2 * k + 1) / (2 * frames);
      std::vector<uint8_t>& pixels = videos.back()[static_cast<size_t>(k)].pixels;
      for (int y = 0; y < height; ++y) {
        for (int x = std::max(0, at - 8); x < std::min(width, at + 8); ++x) {
          const auto place = 3 * (static_cast<size_t>(y) * width + x);
          std::fill_n(&pixels[place], 3, static_cast<uint8_t>(255));
        }
      }
    }
    pictures.push_back({.prompt = LongPrompt(i),
                        .reward = 0.2 + 0.01 * i + 0.002 * step,
                        .rewards = {{"pickscore", 0.5}}});
  }
  AddEvaluation(run_dir, step, absl::StrCat("held-out prompts, step ", step), videos,
                std::move(pictures));
}

}  // namespace oxbow::io
