// SPDX-License-Identifier: Apache-2.0
// GenEval's detector, colours and scores against a second writing in Python, on every model of a
// directory of tools/make_geneval_goldens.py: OXBOW_SCORER_GOLDENS, or tests/golden/scorers.
#include "rewards/geneval.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/image.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "rewards/instance_detector.h"
#include "rewards/network_files.h"

namespace oxbow::rewards {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using reward::GenevalVariant;
using reward::Item;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-4;
constexpr int kModels = 6, kImages = 3;

fs::path Goldens() {
  const char* directory = std::getenv("OXBOW_SCORER_GOLDENS");
  return fs::path(directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/scorers") /
         "geneval";
}

// A detector's directory as a user makes it: converted weights beside config and graph.
fs::path Model(int index, const std::string& name = "geneval") {
  const fs::path source = Goldens() / std::to_string(index);
  const fs::path made = fs::path(::testing::TempDir()) / (name + std::to_string(index));
  fs::remove_all(made);
  fs::create_directories(made);
  for (const char* const file : {"config.json", "graph.json.gz", "model.safetensors"}) {
    fs::copy_file(source / file, made / file);
  }
  return made;
}

std::shared_ptr<ClipTowers> Towers() {
  static const auto& towers =
      *new auto(ClipTowers::Open(OXBOW_SOURCE_DIR "/tests/golden/scorers/clip"));
  EXPECT_TRUE(towers.ok()) << towers.status();
  return *towers;
}

std::unique_ptr<reward::Scorer> Open(int index, GenevalVariant variant) {
  auto scorer = OpenGeneval(Model(index), Towers(), variant);
  EXPECT_TRUE(scorer.ok()) << scorer.status();
  return *std::move(scorer);
}

struct Expected {
  std::vector<Image8> images;
  std::map<std::string, at::Tensor> logits;
};

Expected ExpectedOf(int index) {
  const auto file = io::ReadSafetensors(Goldens() / std::to_string(index) / "expected.safetensors");
  EXPECT_TRUE(file.ok()) << file.status();
  Expected expected;
  for (int i = 0; i < kImages; ++i) {
    const io::TensorBytes& tensor = file->tensors.at("image." + std::to_string(i));
    expected.images.push_back({static_cast<int>(tensor.shape[1]),
                               static_cast<int>(tensor.shape[0]),
                               static_cast<int>(tensor.shape[2]),
                               {tensor.data.begin(), tensor.data.end()}});
    for (const std::string kind : {"classes.", "masks."}) {
      const std::string name = kind + std::to_string(i);
      expected.logits[name] = *io::ToTorch(file->tensors.at(name));
    }
  }
  return expected;
}

const Json& Golden() {
  static const Json& golden = *new Json(Json::parse(*ReadFile(Goldens() / "expected.json")));
  return golden;
}

const char* NameOf(GenevalVariant variant) {
  return variant == GenevalVariant::kOfficial ? "official" : "flow_grpo";
}

// Metadata that ask for what was found in an image, or so many more of it, and the verdict of the
// rules over the golden detections.
struct Asked {
  std::string metadata;
  reward::GenevalVerdict verdict;
};

Asked AskedOf(const Json& rows, GenevalVariant variant, int64_t more) {
  std::vector<reward::Detection> detections;
  std::map<size_t, int> colours;
  std::map<int, int64_t> counts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    const Json& box = row["box"];
    detections.push_back(
        {.thing = row["thing"], .box = {box[0], box[1], box[2], box[3]}, .score = row["score"]});
    const auto names = reward::GenevalColours();
    colours[i] = static_cast<int>(
        std::find(names.begin(), names.end(), row["colour"].get<std::string>()) - names.begin());
    ++counts[detections.back().thing];
  }
  Json include = Json::array();
  for (const auto& [thing, count] : counts) {
    Json demand = {{"class", reward::GenevalThings()[static_cast<size_t>(thing)]},
                   {"count", std::max<int64_t>(count + more, 1)}};
    if (include.size() % 2 == 0 && more >= 0) demand["color"] = "blue";
    if (include.size() % 3 == 2) demand["position"] = {"left of", 0};
    include.push_back(demand);
  }
  if (include.empty()) include.push_back({{"class", "dog"}, {"count", 1}});
  Asked asked{.metadata = Json{{"tag", "position"}, {"include", include}}.dump(), .verdict = {}};
  const auto prompt = reward::ParseGenevalPrompt(asked.metadata);
  EXPECT_TRUE(prompt.ok()) << prompt.status();
  asked.verdict = reward::JudgeGeneval(
      *prompt, detections, reward::CountDetections(detections, prompt->tag), colours, variant);
  return asked;
}

// The model that finds most objects.
int BusiestModel(GenevalVariant variant) {
  const auto found = [variant](int index) {
    size_t count = 0;
    for (const Json& image : Golden()[std::to_string(index)])
      count += image[NameOf(variant)].size();
    return count;
  };
  int best = 0;
  for (int index = 1; index < kModels; ++index) {
    if (found(index) > found(best)) best = index;
  }
  return best;
}

double Largest(const at::Tensor& tensor) { return tensor.abs().max().item<double>(); }

// The probabilities in a detection: of each class, and of each pixel of a mask.
at::Tensor Probabilities(const std::string& kind, const at::Tensor& logits) {
  return kind == "classes" ? logits.softmax(-1) : logits.sigmoid();
}

// Promise: Rewards are those of their projects.

// Logits are rounded by their size, so their difference is in parts of the largest.
TEST(GenevalTest, LogitsAreThoseOfThePapersNetwork) {
  double absolute = 0, relative = 0, of_probabilities = 0;
  for (int index = 0; index < kModels; ++index) {
    const Expected expected = ExpectedOf(index);
    const auto detector = InstanceDetector::Open(Model(index), {});
    ASSERT_TRUE(detector.ok()) << detector.status();
    for (int i = 0; i < kImages; ++i) {
      const auto logits =
          (*detector)->Logits(reward::ToRgb(expected.images[static_cast<size_t>(i)]));
      ASSERT_TRUE(logits.ok()) << logits.status();
      for (const std::string kind : {"classes", "masks"}) {
        const at::Tensor &ours = logits->at(kind)[0],
                         &theirs = expected.logits.at(kind + "." + std::to_string(i));
        const double error = Largest(ours - theirs), part = error / std::max(Largest(theirs), 1.0);
        const double probability = Largest(Probabilities(kind, ours) - Probabilities(kind, theirs));
        EXPECT_LE(part, kTolerance) << "model " << index << ", image " << i << ", " << kind;
        EXPECT_LE(probability, kTolerance) << "model " << index << ", image " << i << ", " << kind;
        absolute = std::max(absolute, error);
        relative = std::max(relative, part);
        of_probabilities = std::max(of_probabilities, probability);
      }
    }
  }
  std::cout << "mask2former: largest difference of logits " << absolute << ", " << relative
            << " of the largest logit; of probabilities " << of_probabilities << "\n";
}

TEST(GenevalTest, Bfloat16DetectsNearlyTheSame) {
  const int model = BusiestModel(GenevalVariant::kOfficial);
  const auto exact = InstanceDetector::Open(Model(model), {});
  const auto rough = InstanceDetector::Open(Model(model), {.compute = at::kBFloat16});
  ASSERT_TRUE(exact.ok() && rough.ok()) << rough.status();
  EXPECT_NE((*exact)->identity(), (*rough)->identity());
  for (const Image8& image : ExpectedOf(model).images) {
    const Image8 picture = reward::ToRgb(image);
    const auto wide = (*exact)->Logits(picture), narrow = (*rough)->Logits(picture);
    ASSERT_TRUE(wide.ok() && narrow.ok()) << narrow.status();
    for (const std::string kind : {"classes", "masks"}) {
      const at::Tensor &a = wide->at(kind), &b = narrow->at(kind);
      const double distance = ((a - b).norm() / a.norm()).item<double>();
      EXPECT_GT(distance, 0) << kind;
      EXPECT_LT(distance, 0.06) << kind;
    }
    const float least = reward::GenevalThreshold("");
    const auto found = (*exact)->Detect(picture, least), roughly = (*rough)->Detect(picture, least);
    ASSERT_TRUE(found.ok() && roughly.ok()) << roughly.status();
    EXPECT_NEAR(static_cast<double>(roughly->size()), static_cast<double>(found->size()), 2);
    EXPECT_GT(roughly->size(), 0u);
  }
}

TEST(GenevalTest, DetectionsAreThoseOfTheReference) {
  size_t count = 0;
  for (int index = 0; index < kModels; ++index) {
    const Expected expected = ExpectedOf(index);
    const auto detector = InstanceDetector::Open(Model(index), {});
    ASSERT_TRUE(detector.ok()) << detector.status();
    for (int i = 0; i < kImages; ++i) {
      auto found = (*detector)->Detect(reward::ToRgb(expected.images[static_cast<size_t>(i)]),
                                       reward::GenevalThreshold(""));
      ASSERT_TRUE(found.ok()) << found.status();
      std::vector<Json> rows = Golden()[std::to_string(index)][std::to_string(i)]["official"];
      ASSERT_EQ(found->size(), rows.size());
      const auto before = [](const auto& a, const auto& b) {
        return std::pair(a.detection.thing, a.detection.score) <
               std::pair(b.detection.thing, b.detection.score);
      };
      std::sort(found->begin(), found->end(), before);
      std::sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) {
        return std::pair(a["thing"].get<int>(), a["score"].get<float>()) <
               std::pair(b["thing"].get<int>(), b["score"].get<float>());
      });
      for (size_t row = 0; row < rows.size(); ++row, ++count) {
        const Instance& ours = (*found)[row];
        EXPECT_EQ(ours.detection.thing, rows[row]["thing"]);
        EXPECT_NEAR(ours.detection.score, rows[row]["score"], kTolerance);
        for (size_t side = 0; side < 4; ++side) {
          EXPECT_NEAR(ours.detection.box[side], rows[row]["box"][side], 1) << rows[row];
        }
        EXPECT_NEAR(std::count(ours.mask.begin(), ours.mask.end(), 1), rows[row]["area"], 2);
      }
    }
  }
  EXPECT_GE(count, 20u);
}

class GenevalScoreTest : public ::testing::TestWithParam<GenevalVariant> {};

// Promise: Rewards are those of their projects.

TEST_P(GenevalScoreTest, ScoresAreTheRulesOverTheReferencesDetectionsAndColours) {
  std::set<double> values;
  for (int index = 0; index < kModels; ++index) {
    const Expected expected = ExpectedOf(index);
    const auto scorer = Open(index, GetParam());
    for (int i = 0; i < kImages; ++i) {
      const Json& rows = Golden()[std::to_string(index)][std::to_string(i)][NameOf(GetParam())];
      for (const int64_t more : {-99, 0, 1}) {
        const Asked asked = AskedOf(rows, GetParam(), more);
        const auto score = reward::ScoreOne(*scorer, "a photo", asked.metadata,
                                            expected.images[static_cast<size_t>(i)]);
        ASSERT_TRUE(score.ok()) << score.status();
        EXPECT_DOUBLE_EQ(score->value, asked.verdict.score) << asked.metadata << score->note;
        values.insert(score->value);
      }
    }
  }
  EXPECT_GE(values.size(), 2u);
}

TEST_P(GenevalScoreTest, CompanyAndOrderChangeNoScore) {
  const int model = BusiestModel(GetParam());
  const Expected expected = ExpectedOf(model);
  const auto scorer = Open(model, GetParam());
  std::vector<std::string> metadata;
  for (int i = 0; i < kImages; ++i) {
    const Json& rows = Golden()[std::to_string(model)][std::to_string(i)][NameOf(GetParam())];
    ASSERT_GE(rows.size(), 5u);
    for (const int64_t more : {-99, 1}) {
      metadata.push_back(AskedOf(rows, GetParam(), more).metadata);
    }
  }
  std::vector<Item> items;
  for (size_t i = 0; i < metadata.size(); ++i) {
    items.push_back({.prompt = "a photo",
                     .metadata_json = metadata[i],
                     .frames = {&expected.images[i / 2], 1}});
  }
  items.push_back({.prompt = "a photo", .frames = {&expected.images[0], 1}});
  const auto together = scorer->ScoreBatch(items);
  std::reverse(items.begin(), items.end());
  const auto turned = scorer->ScoreBatch(items);
  EXPECT_EQ(together.back().status().code(), absl::StatusCode::kInvalidArgument);
  std::set<double> values;
  for (size_t i = 0; i < metadata.size(); ++i) {
    const size_t at = metadata.size() - i;
    const auto alone = scorer->ScoreBatch({&items[at], 1});
    ASSERT_TRUE(alone[0].ok()) << alone[0].status();
    EXPECT_EQ(together[i]->value, alone[0]->value);
    EXPECT_EQ(turned[at]->value, alone[0]->value);
    EXPECT_EQ(together[i]->note, alone[0]->note);
    values.insert(alone[0]->value);
  }
  EXPECT_GE(values.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Variants, GenevalScoreTest,
                         ::testing::Values(GenevalVariant::kOfficial, GenevalVariant::kFlowGrpo),
                         [](const auto& variant) { return std::string(NameOf(variant.param)); });

TEST(GenevalTest, BadItemsAreNamed) {
  const auto scorer = Open(0, GenevalVariant::kFlowGrpo);
  const Image8 image = ExpectedOf(0).images[0];
  const std::string sound = R"({"include": [{"class": "dog", "count": 1}]})";
  const auto refused = [&](const std::string& metadata, const Image8& picture) {
    const auto status = reward::ScoreOne(*scorer, "a dog", metadata, picture).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused("", image), HasSubstr("metadata are not a JSON object"));
  EXPECT_THAT(refused("{}", image), HasSubstr("include: missing"));
  EXPECT_THAT(refused(R"({"include": [{"class": "dgo", "count": 1}]})", image),
              HasSubstr("did you mean `dog`?"));
  EXPECT_THAT(refused(sound, {10, 10, 3, {1}}), HasSubstr("geneval takes no such picture"));
  const Image8 strip{512, 16, 3, std::vector<uint8_t>(512 * 16 * 3)};
  EXPECT_THAT(refused(sound, strip), HasSubstr("export one with this width and height"));
  // Nothing of one colour: no failure.
  const Image8 grey{image.width, image.height, 3, std::vector<uint8_t>(image.pixels.size(), 128)};
  const auto score = reward::ScoreOne(*scorer, "a dog", sound, grey);
  ASSERT_TRUE(score.ok()) << score.status();
}

TEST(GenevalTest, IdentitiesTellTrainingsAndVariantsApart) {
  const fs::path other = Model(0, "other");
  auto weights = io::ReadSafetensors(other / "model.safetensors");
  weights->tensors.at("class_predictor.bias").data[0] ^= 1;
  ASSERT_TRUE(io::WriteSafetensors(other / "model.safetensors", *weights).ok());
  const std::set<std::string> identities = {
      Open(0, GenevalVariant::kOfficial)->facts().identity,
      Open(0, GenevalVariant::kFlowGrpo)->facts().identity,
      Open(1, GenevalVariant::kOfficial)->facts().identity,
      (*OpenGeneval(other, Towers(), GenevalVariant::kOfficial))->facts().identity};
  EXPECT_EQ(identities.size(), 4u);
}

TEST(GenevalTest, AnotherNetworksWeightsAreNamed) {
  const fs::path broken = Model(0, "broken");
  fs::copy_file(Model(1) / "model.safetensors", broken / "model.safetensors",
                fs::copy_options::overwrite_existing);
  const auto status = OpenGeneval(broken, Towers(), GenevalVariant::kOfficial).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(broken.string()));
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

TEST(GenevalTest, CropsHaveGreyAroundTheObject) {
  Image8 image{4, 3, 3, {}};
  for (uint8_t i = 0; i < 36; ++i) image.pixels.push_back(i);
  Instance object{.detection = {.thing = 0, .box = {1, 0, 3, 2}, .score = 1},
                  .mask = std::vector<uint8_t>(12)};
  object.mask[1] = object.mask[6] = 1;
  const Image8 crop = ColourCrop(image, object);
  EXPECT_EQ(crop, (Image8{2, 2, 3, {3, 4, 5, 153, 153, 153, 153, 153, 153, 18, 19, 20}}));
}

}  // namespace
}  // namespace oxbow::rewards
