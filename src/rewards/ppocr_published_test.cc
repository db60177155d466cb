// SPDX-License-Identifier: Apache-2.0
// PP-OCRv6 tiny with its published weights (models/ppocr_v6_tiny) against PaddleOCR 3.7, on the
// pictures of tools/make_ppocr_published.py in OXBOW_SCORER_GOLDENS, or tests/golden/scorers.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "io/graph_files.h"
#include "io/image.h"
#include "io/safetensors.h"
#include "rewards/ppocr_reader.h"

namespace oxbow::rewards {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kConfidenceError = 1e-3;
constexpr size_t kReadTwice = 8;  // Confidences are looked at in every eighth picture.

struct ReadPicture {
  Image8 picture;
  json lines;  // [{text, confidence}] by PaddleOCR, in its order.

  // Those that `confidence_min` keeps, as an engine of `ocr` returns them.
  std::string Text(double confidence_min = 0) const {
    std::vector<std::string> kept;
    for (const json& line : lines) {
      if (line["confidence"] >= confidence_min && line["text"] != "") kept.push_back(line["text"]);
    }
    return absl::StrJoin(kept, "\n");
  }
};

std::vector<ReadPicture> PicturesReadByPaddleOcr() {
  const char* directory = std::getenv("OXBOW_SCORER_GOLDENS");
  const fs::path from =
      fs::path(directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/scorers") /
      "ppocr/published";
  const auto file = io::ReadSafetensors(from / "pictures.safetensors");
  const auto golden = io::ReadGraphFile(from / "golden.json.gz");
  EXPECT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(golden.ok()) << golden.status();
  std::vector<ReadPicture> pictures;
  for (const json& lines : json::parse(*golden)) {
    const auto& png = file->tensors.at(std::to_string(pictures.size())).data;
    pictures.push_back({*io::DecodePng({png.data(), png.size()}), lines});
  }
  return pictures;
}

std::unique_ptr<TextReader> Open(double confidence_min = 0) {
  auto reader = OpenPpocr(
      {.directory = OXBOW_SOURCE_DIR "/models/ppocr_v6_tiny", .confidence_min = confidence_min});
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

// Promise: Rewards are those of their projects.
TEST(PpocrPublishedTest, PublishedWeightsReadWhatPaddleOcrReads) {
  const std::vector<ReadPicture> pictures = PicturesReadByPaddleOcr();
  const auto reader = Open();
  size_t lines = 0;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const auto text = reader->Read(pictures[i].picture);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, pictures[i].Text()) << "picture " << i;
    lines += pictures[i].lines.size();
  }
  std::cout << "ppocr: " << lines << " lines in " << pictures.size() << " pictures\n";
  EXPECT_GE(pictures.size(), 20u);
  EXPECT_GT(lines, pictures.size());
}

TEST(PpocrPublishedTest, ConfidencesAreThoseOfPaddleOcr) {
  const std::vector<ReadPicture> pictures = PicturesReadByPaddleOcr();
  int compared = 0;
  for (size_t i = 0; i < pictures.size(); i += kReadTwice) {
    if (pictures[i].lines.empty()) continue;
    const double confidence = pictures[i].lines[0]["confidence"];
    for (const double bound : {confidence - kConfidenceError, confidence + kConfidenceError}) {
      if (bound > 1) continue;
      const auto text = Open(bound)->Read(pictures[i].picture);
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, pictures[i].Text(bound)) << "picture " << i << " above " << bound;
      ++compared;
    }
  }
  EXPECT_GE(compared, 20);
}

}  // namespace
}  // namespace oxbow::rewards
