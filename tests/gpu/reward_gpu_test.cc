// SPDX-License-Identifier: Apache-2.0
// The networks of GenEval, ImageReward and PP-OCRv5 on a GPU say what they say on the CPU.
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "core/reward/geneval_rule.h"
#include "io/image.h"
#include "io/safetensors.h"
#include "rewards/clip_towers.h"
#include "rewards/geneval.h"
#include "rewards/imagereward.h"
#include "rewards/instance_detector.h"
#include "rewards/network_files.h"
#include "tests/gpu/gpu_test.h"

namespace oxbow::rewards {
namespace {

namespace fs = std::filesystem;
using model::ExpectNear;
using model::exported::NetworkOptions;

fs::path Goldens() {
  const char* const directory = std::getenv("OXBOW_SCORER_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/scorers";
}

// Promise: GPU code does what the CPU's does.
class RewardGpuTest : public model::GpuTest {
 protected:
  // The kinds of network that a GPU computes: in float32 and in bfloat16.
  std::vector<NetworkOptions> Kinds() const {
    return {{.device = gpu_}, {.device = gpu_, .compute = at::kBFloat16}};
  }
};

double ToleranceOf(const NetworkOptions& options) {
  return options.compute == at::kFloat ? model::kExactTolerance : model::kShortTolerance;
}

std::vector<Image8> ImagesOf(const fs::path& file) {
  const auto read = io::ReadSafetensors(file);
  EXPECT_TRUE(read.ok()) << read.status();
  std::vector<Image8> images;
  for (int i = 0; read->tensors.contains("image." + std::to_string(i)); ++i) {
    const io::TensorBytes& tensor = read->tensors.at("image." + std::to_string(i));
    images.push_back({static_cast<int>(tensor.shape[1]),
                      static_cast<int>(tensor.shape[0]),
                      static_cast<int>(tensor.shape[2]),
                      {tensor.data.begin(), tensor.data.end()}});
  }
  return images;
}

// As a user makes it: converted weights beside config and graph.
fs::path Detector(const std::string& name) {
  const fs::path source = Goldens() / "geneval" / name;
  const fs::path made = fs::path(::testing::TempDir()) / ("detector" + name);
  fs::remove_all(made);
  fs::create_directories(made);
  for (const char* const file : {"config.json", "graph.json.gz", "model.safetensors"}) {
    fs::copy_file(source / file, made / file);
  }
  return made;
}

TEST_F(RewardGpuTest, GenevalsDetectorGivesTheLogitsOfTheCpu) {
  for (const std::string name : {"0", "3"}) {
    const fs::path directory = Detector(name);
    const auto near = InstanceDetector::Open(directory, {});
    ASSERT_TRUE(near.ok()) << near.status();
    for (const NetworkOptions& kind : Kinds()) {
      const auto far = InstanceDetector::Open(directory, kind);
      ASSERT_TRUE(far.ok()) << far.status();
      for (const Image8& image : ImagesOf(Goldens() / "geneval" / name / "expected.safetensors")) {
        const auto ours = (*far)->Logits(reward::ToRgb(image));
        const auto theirs = (*near)->Logits(reward::ToRgb(image));
        ASSERT_TRUE(ours.ok() && theirs.ok()) << ours.status();
        for (const auto& [output, logits] : *ours) {
          EXPECT_TRUE(logits.is_cpu());
          ExpectNear(output, logits, theirs->at(output), ToleranceOf(kind));
        }
      }
    }
  }
}

TEST_F(RewardGpuTest, GenevalScoresWhatItScoresOnTheCpu) {
  const fs::path directory = Detector("3");
  const auto opened = [&](at::Device device) {
    auto towers = ClipTowers::Open(Goldens() / "clip", {.device = device});
    EXPECT_TRUE(towers.ok()) << towers.status();
    auto scorer =
        OpenGeneval(directory, *towers, reward::GenevalVariant::kFlowGrpo, {.device = device});
    EXPECT_TRUE(scorer.ok()) << scorer.status();
    return *std::move(scorer);
  };
  const auto near = opened(at::kCPU), far = opened(gpu_);
  const std::string metadata =
      R"({"tag": "colors", "include": [{"class": "oven", "count": 8, "color": "black"},
                                       {"class": "boat", "count": 4}]})";
  for (const Image8& image : ImagesOf(Goldens() / "geneval/3/expected.safetensors")) {
    const auto ours = reward::ScoreOne(*far, "a photo", metadata, image);
    const auto theirs = reward::ScoreOne(*near, "a photo", metadata, image);
    ASSERT_TRUE(ours.ok() && theirs.ok()) << ours.status();
    EXPECT_EQ(ours->value, theirs->value);
    EXPECT_EQ(ours->note, theirs->note);
  }
}

TEST_F(RewardGpuTest, ImageRewardScoresWhatItScoresOnTheCpu) {
  const auto file = io::ReadSafetensors(Goldens() / "imagereward/items.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto prompts =
      nlohmann::json::parse(file->metadata.at("prompts")).get<std::vector<std::string>>();
  const std::vector<Image8> images = ImagesOf(Goldens() / "imagereward/items.safetensors");
  std::vector<reward::Item> items;
  for (size_t i = 0; i < prompts.size(); ++i) {
    items.push_back({.prompt = prompts[i], .frames = {&images[i], 1}});
  }
  for (const std::string name : {"0", "2"}) {
    const auto near = *OpenImageReward(Goldens() / "imagereward" / name);
    const auto theirs = near->ScoreBatch(items);
    for (const NetworkOptions& kind : Kinds()) {
      const auto far = OpenImageReward(Goldens() / "imagereward" / name, kind);
      ASSERT_TRUE(far.ok()) << far.status();
      const auto ours = (*far)->ScoreBatch(items);
      for (size_t i = 0; i < items.size(); ++i) {
        ASSERT_TRUE(ours[i].ok()) << ours[i].status();
        EXPECT_NEAR(ours[i]->value, theirs[i]->value, kind.compute == at::kFloat ? 1e-4 : 0.1);
      }
    }
  }
}

// Both networks of a reader, without what OpenCV does around them.
TEST_F(RewardGpuTest, PpocrsNetworksSayWhatTheySayOnTheCpu) {
  at::manual_seed(3);
  const at::Tensor picture = at::randn({1, 3, 64, 96}), lines = at::randn({2, 3, 48, 100});
  const auto said = [](const fs::path& directory, const std::string& class_name,
                       const at::Tensor& pixels, const NetworkOptions& options) {
    const auto opened = OpenNetwork(directory, class_name, options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    const auto outputs = opened->network->Run({{"pixels", pixels}});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs->begin()->second;
  };
  for (const std::string kind : {"mobile", "server"}) {
    const fs::path directory = Goldens() / "ppocr" / kind / "0";
    const std::string family = kind == "mobile" ? "PPOCRV5Mobile" : "PPOCRV5Server";
    for (const auto& [part, name, pixels] :
         {std::tuple("det", family + "DetForObjectDetection", picture),
          {"rec", family + "RecForTextRecognition", lines}}) {
      const at::Tensor theirs = said(directory / part, name, pixels, {});
      ExpectNear(name, said(directory / part, name, pixels, {.device = gpu_}), theirs,
                 model::kExactTolerance);
      // Random weights spread the logits wide, so some probabilities turn. Most of them stay.
      const at::Tensor rough =
          said(directory / part, name, pixels, {.device = gpu_, .compute = at::kBFloat16});
      EXPECT_LT((rough - theirs).abs().mean().item<double>(), 0.1) << name;
    }
  }
}

}  // namespace
}  // namespace oxbow::rewards
