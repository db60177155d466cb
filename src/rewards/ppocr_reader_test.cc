// SPDX-License-Identifier: Apache-2.0
// PP-OCRv5 and v6 against transformers' networks and PaddleX's pipeline around them, on every model
// of a directory of tools/make_ppocr_goldens.py: OXBOW_SCORER_GOLDENS, or tests/golden/scorers.
#include "rewards/ppocr_reader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "core/reward/scorer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/graph_files.h"
#include "io/safetensors.h"
#include "rewards/network_files.h"
#include "rewards/ocr_scorer.h"
#include "rewards/text_regions.h"

namespace oxbow::rewards {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// From transformers' networks in float64. Models are drawn such that float32 itself stays within a
// third of this.
constexpr double kTolerance = 1e-4;

fs::path Goldens() {
  const char* directory = std::getenv("OXBOW_SCORER_GOLDENS");
  return fs::path(directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/scorers") /
         "ppocr";
}

// By name, such as "mobile/0": what the script's networks say.
std::map<std::string, json> Models() {
  std::map<std::string, json> models;
  for (const char* kind : {"mobile", "server", "v6_small", "v6_medium"}) {
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator(Goldens() / kind, absent)) {
      models[kind + ("/" + entry.path().filename().string())] =
          json::parse(*io::ReadGraphFile(entry.path() / "golden.json.gz"));
    }
  }
  return models;
}

std::vector<Image8> Pictures() {
  const auto file = io::ReadSafetensors(Goldens() / "pictures.safetensors");
  EXPECT_TRUE(file.ok()) << file.status();
  std::vector<Image8> pictures;
  for (size_t i = 0; i < file->tensors.size(); ++i) {
    const io::TensorBytes& tensor = file->tensors.at("image." + std::to_string(i));
    pictures.push_back({static_cast<int>(tensor.shape[1]),
                        static_cast<int>(tensor.shape[0]),
                        static_cast<int>(tensor.shape[2]),
                        {tensor.data.begin(), tensor.data.end()}});
  }
  return pictures;
}

std::unique_ptr<TextReader> Open(const fs::path& directory, double confidence_min = 0) {
  auto reader = OpenPpocr({.directory = directory, .confidence_min = confidence_min});
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

// [1, 3, H, W] in units of 1 / 255.
at::Tensor PlanesOf(const Image8& picture) {
  return at::from_blob(const_cast<uint8_t*>(picture.pixels.data()),
                       {picture.height, picture.width, 3}, at::kByte)
      .to(at::kFloat)
      .permute({2, 0, 1})
      .unsqueeze(0)
      .contiguous();
}

// The distance of a network's output for pixels from that of transformers.
at::Tensor OutputError(const fs::path& directory, const std::string& class_name,
                       const at::Tensor& pixels, const json& millionths,
                       const model::exported::NetworkOptions& options = {}) {
  auto opened = OpenNetwork(directory, class_name, options);
  EXPECT_TRUE(opened.ok()) << opened.status();
  const auto outputs = opened->network->Run({{"pixels", pixels}});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  const at::Tensor theirs =
      at::tensor(millionths.get<std::vector<int64_t>>()).to(at::kDouble) / 1e6;
  const at::Tensor ours = outputs->begin()->second.flatten().to(at::kDouble);
  EXPECT_EQ(ours.numel(), theirs.numel());
  return (ours - theirs).abs();
}

struct Inputs {
  at::Tensor picture;  // The detector's.
  at::Tensor line;     // The recogniser's.
};

Inputs GoldenInputs() {
  const std::vector<Image8> pictures = Pictures();
  const at::Tensor mean = at::tensor({0.485, 0.456, 0.406}, at::kFloat).view({1, 3, 1, 1});
  const at::Tensor deviation = at::tensor({0.229, 0.224, 0.225}, at::kFloat).view({1, 3, 1, 1});
  return {.picture = (PlanesOf(pictures[0]) / 255 - mean) / deviation,
          .line = PlanesOf(ResizeAsOpenCv(pictures[1], {100, reward::kLineHeight})) / 127.5 - 1};
}

// The classes of a model's detector and recogniser.
std::pair<std::string, std::string> ClassesOf(const std::string& name) {
  static constexpr std::array kClasses = {
      std::array{"mobile", "V5Mobile", "V5Mobile"}, std::array{"server", "V5Server", "V5Server"},
      std::array{"v6_small", "V6Small", "V6Tiny"}, std::array{"v6_medium", "V6Medium", "V6Small"}};
  for (const auto& [kind, det, rec] : kClasses) {
    if (name.starts_with(kind)) {
      return {absl::StrCat("PPOCR", det, "DetForObjectDetection"),
              absl::StrCat("PPOCR", rec, "RecForTextRecognition")};
    }
  }
  return {};
}

// Promise: Rewards are those of their projects.

TEST(PpocrReaderTest, MapsAndProbabilitiesAreThoseOfTransformers) {
  const Inputs in = GoldenInputs();
  std::map<std::string, int> seen;
  for (const auto& [name, golden] : Models()) {
    const auto [detector, recogniser] = ClassesOf(name);
    const auto map = OutputError(Goldens() / name / "det", detector, in.picture, golden["map"])
                         .max()
                         .item<double>();
    const auto probabilities =
        OutputError(Goldens() / name / "rec", recogniser, in.line, golden["line"])
            .max()
            .item<double>();
    EXPECT_LT(map, kTolerance) << name;
    EXPECT_LT(probabilities, kTolerance) << name;
    std::cout << "ppocr: " << name << " map " << map << ", PyTorch's rounding "
              << golden["map_rounding"] << "; probabilities " << probabilities << ", "
              << golden["line_rounding"] << "\n";
    ++seen[detector];
  }
  EXPECT_GE(seen["PPOCRV5MobileDetForObjectDetection"], 6);
  EXPECT_GE(seen["PPOCRV5ServerDetForObjectDetection"], 6);
  EXPECT_GE(seen["PPOCRV6SmallDetForObjectDetection"], 2);
  EXPECT_GE(seen["PPOCRV6MediumDetForObjectDetection"], 2);
}

// Random weights spread the logits wide, so some probabilities turn. Most of them stay.
TEST(PpocrReaderTest, Bfloat16SaysNearlyTheSame) {
  const Inputs in = GoldenInputs();
  const model::exported::NetworkOptions options{.compute = at::kBFloat16};
  for (const auto& [name, golden] : Models()) {
    const auto [detector, recogniser] = ClassesOf(name);
    for (const at::Tensor& error :
         {OutputError(Goldens() / name / "det", detector, in.picture, golden["map"], options),
          OutputError(Goldens() / name / "rec", recogniser, in.line, golden["line"], options)}) {
      EXPECT_GT(error.max().item<double>(), 0) << name;
      EXPECT_LT(error.mean().item<double>(), 0.1) << name;
    }
    const auto reader = OpenPpocr({.directory = Goldens() / name, .dtype = "bf16"});
    ASSERT_TRUE(reader.ok()) << reader.status();
    for (const Image8& picture : Pictures())
      EXPECT_EQ((*reader)->Read(picture).status(), absl::OkStatus());
  }
}

TEST(PpocrReaderTest, TextIsWhatPaddleXReads) {
  const std::vector<Image8> pictures = Pictures();
  int lines = 0;
  for (const auto& [name, golden] : Models()) {
    const auto reader = Open(Goldens() / name);
    for (size_t i = 0; i < pictures.size(); ++i) {
      std::vector<std::string> theirs;
      for (const json& line : golden["read"][i]) {
        ++lines;
        if (line["text"] != "") theirs.push_back(line["text"]);
      }
      const auto ours = reader->Read(pictures[i]);
      ASSERT_TRUE(ours.ok()) << ours.status();
      EXPECT_EQ(*ours, absl::StrJoin(theirs, "\n")) << name << " " << i;
    }
  }
  EXPECT_GT(lines, 60);
}

int64_t LinesIn(const std::string& text) {
  return text.empty() ? 0 : std::count(text.begin(), text.end(), '\n') + 1;
}

TEST(PpocrReaderTest, LinesOfLessConfidenceAreNotRead) {
  const Image8 picture = Pictures()[2];
  std::vector<double> confidences;
  const json golden = Models().at("mobile/2")["read"][2];
  for (const json& line : golden) confidences.push_back(line["confidence"]);
  ASSERT_GT(confidences.size(), 2u);
  std::sort(confidences.begin(), confidences.end());
  const auto all = Open(Goldens() / "mobile/2");
  const auto sure = Open(Goldens() / "mobile/2", (confidences.front() + confidences.back()) / 2);
  EXPECT_GT(LinesIn(*all->Read(picture)), LinesIn(*sure->Read(picture)));
  EXPECT_GT(LinesIn(*sure->Read(picture)), 0);
  EXPECT_NE(sure->identity(), all->identity());
}

// Promise: The OCR engine makes no score up.
TEST(PpocrReaderTest, AReadingDependsOnThePictureAlone) {
  const std::vector<Image8> pictures = Pictures();
  const auto reader = Open(Goldens() / "mobile/1");
  std::vector<std::string> alone;
  for (const Image8& picture : pictures) {
    alone.push_back(*Open(Goldens() / "mobile/1")->Read(picture));
  }
  for (const size_t i : {2, 0, 3, 1, 1, 0}) EXPECT_EQ(*reader->Read(pictures[i]), alone[i]) << i;
}

// Promise: The OCR engine makes no score up.
TEST(PpocrReaderTest, ABatchOfScoresIsItsItemsInAnyOrder) {
  const std::vector<Image8> pictures = Pictures();
  auto made = MakeOcr({}, Open(Goldens() / "mobile/2"));
  ASSERT_TRUE(made.ok()) << made.status();
  reward::Scorer& scorer = **made;
  std::vector<reward::Item> items;
  for (const Image8& picture : pictures) {
    items.push_back({.prompt = "a sign that says \"abcdefghij\"", .frames = {&picture, 1}});
  }
  std::vector<reward::Item> turned(items.rbegin(), items.rend());
  const auto batch = scorer.ScoreBatch(items), backwards = scorer.ScoreBatch(turned);
  for (size_t i = 0; i < items.size(); ++i) {
    ASSERT_TRUE(batch[i].ok()) << batch[i].status();
    const auto alone = scorer.ScoreBatch({&items[i], 1});
    EXPECT_EQ(batch[i]->value, alone[0]->value);
    EXPECT_EQ(batch[i]->note, alone[0]->note);
    EXPECT_EQ(batch[i]->value, backwards[items.size() - 1 - i]->value);
  }
}

// Promise: The OCR engine makes no score up.
TEST(PpocrReaderTest, TinyAndStrangePicturesAreReadOrRefused) {
  const auto reader = Open(Goldens() / "mobile/0");
  for (const auto& [width, height] : {std::pair{1, 1}, {3, 9}, {9, 90}, {33, 31}, {200, 30}}) {
    for (const int channels : {1, 3}) {
      const Image8 tiny{width, height, channels,
                        std::vector<uint8_t>(static_cast<size_t>(width) * height * channels, 99)};
      EXPECT_EQ(reader->Read(tiny).status(), absl::OkStatus()) << width << " x " << height;
    }
  }
  const Image8 giant{4001, 1, 1, std::vector<uint8_t>(4001)}, none, two{1, 1, 2, {1, 2}},
      short_of_bytes{9, 9, 3, {1, 2, 3}};
  for (const Image8& bad : {giant, none, two, short_of_bytes}) {
    const absl::Status status = reader->Read(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("1 to 4000 pixels a side"));
  }
}

// A copy of a model that a test may break.
fs::path CopyOf(const std::string& name) {
  const fs::path copy = fs::path(::testing::TempDir()) / "ppocr";
  fs::remove_all(copy);
  fs::copy(Goldens() / name, copy, fs::copy_options::recursive);
  return copy;
}

TEST(PpocrReaderTest, APictureWithoutTextHasAScore) {
  // Its map is .0003 everywhere.
  const fs::path copy = CopyOf("mobile/0");
  auto weights = io::ReadSafetensors(copy / "det/model.safetensors");
  ASSERT_TRUE(weights.ok()) << weights.status();
  for (auto& [name, tensor] : weights->tensors) {
    if (name.starts_with("head.conv_final"))
      std::fill(tensor.data.begin(), tensor.data.end(), '\0');
    if (name == "head.conv_final.bias") tensor.data.back() = '\xC8';  // -8 in float16.
  }
  ASSERT_TRUE(io::WriteSafetensors(copy / "det/model.safetensors", *weights).ok());
  auto scorer = MakeOcr({}, Open(copy));
  ASSERT_TRUE(scorer.ok()) << scorer.status();
  const auto score = reward::ScoreOne(**scorer, "a sign that says \"hello\"", "", Pictures()[0]);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->value, 0);
  EXPECT_EQ(score->note, "");
}

std::string Refusal(const fs::path& directory) {
  const absl::Status status = OpenPpocr({.directory = directory}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory.string()));
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  return std::string(status.message());
}

void Change(const fs::path& file, const std::string& key, const json& value) {
  json object = json::parse(*ReadFile(file));
  object[key] = value;
  ASSERT_TRUE(WriteFileAtomically(file, object.dump()).ok());
}

TEST(PpocrReaderTest, ADictionaryThatIsNotTheRecognisersIsNamed) {
  const fs::path copy = CopyOf("mobile/0");
  const fs::path file = copy / "rec/preprocessor_config.json";
  auto list = json::parse(*ReadFile(file))["character_list"];
  const std::string classes = std::to_string(list.size());
  list.erase(list.begin());
  Change(file, "character_list", list);
  EXPECT_THAT(Refusal(copy), HasSubstr("characters, but the recogniser tells " + classes));
  Change(file, "character_list", 7);
  EXPECT_THAT(Refusal(copy), HasSubstr("character_list is not a list of strings"));
  ASSERT_TRUE(WriteFileAtomically(file, "[").ok());
  EXPECT_THAT(Refusal(copy), HasSubstr("preprocessor_config.json: is not a JSON object"));
  fs::remove(file);
  EXPECT_EQ(OpenPpocr({.directory = copy}).status().code(), absl::StatusCode::kNotFound);
}

TEST(PpocrReaderTest, ADirectoryOfAnotherModelIsNamed) {
  fs::path copy = CopyOf("mobile/0");
  fs::rename(copy / "det", copy / "was_det");
  fs::rename(copy / "rec", copy / "det");
  fs::rename(copy / "was_det", copy / "rec");
  EXPECT_THAT(Refusal(copy), HasSubstr("model_type is \"pp_ocrv5_mobile_rec\", but a text detector "
                                       "is pp_ocrv5_mobile_det or pp_ocrv5_server_det or "
                                       "pp_ocrv6_small_det or pp_ocrv6_medium_det"));
  copy = CopyOf("mobile/0");
  Change(copy / "rec/config.json", "hidden_size", 77);
  EXPECT_THAT(Refusal(copy), HasSubstr("hidden_size is 77, and the graph is for"));
  copy = CopyOf("mobile/0");
  json backbone = json::parse(*ReadFile(copy / "det/config.json"))["backbone_config"];
  backbone["conv_symmetric_num"] = 9;
  Change(copy / "det/config.json", "backbone_config", backbone);
  EXPECT_THAT(Refusal(copy), HasSubstr("backbone_config.conv_symmetric_num is 9"));
  copy = CopyOf("mobile/0");
  fs::copy_file(Goldens() / "mobile/1/det/model.safetensors", copy / "det/model.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(Refusal(copy), HasSubstr("tensors do not fit the config"));
  copy = CopyOf("mobile/0");
  fs::remove(copy / "det/graph.json.gz");  // And none that comes with oxbow is so small.
  EXPECT_THAT(Refusal(copy),
              HasSubstr("export_model export PPOCRV5MobileDetForObjectDetection --config"));
  EXPECT_EQ(OpenPpocr({.directory = copy / "absent"}).status().code(), absl::StatusCode::kNotFound);
}

TEST(PpocrReaderTest, KeysThatOthersWriteIntoAConfigDoNotMatter) {
  const fs::path copy = CopyOf("mobile/3");
  json backbone = json::parse(*ReadFile(copy / "rec/config.json"))["backbone_config"];
  backbone["dtype"] = nullptr;
  backbone["return_idx"] = {0, 1, 2, 3};
  Change(copy / "rec/config.json", "backbone_config", backbone);
  Change(copy / "rec/config.json", "attention_dropout", 0.0);
  EXPECT_EQ(Open(copy)->identity(), Open(Goldens() / "mobile/3")->identity());
}

TEST(PpocrReaderTest, SettingsThatMakeNoSenseAreNamed) {
  EXPECT_EQ(CheckPpocr({.confidence_min = 1.5}).message(), "confidence_min is 0 to 1, got 1.5");
  EXPECT_THAT(std::string(CheckPpocr({.dtype = "int4"}).message()), HasSubstr("dtype"));
  EXPECT_FALSE(CheckPpocr({.device = "abacus"}).ok());
}

TEST(PpocrReaderTest, IdentitiesTellModelsAndTypesApart) {
  const auto identity = [](const std::string& name, const std::string& dtype = "") {
    return (*OpenPpocr({.directory = Goldens() / name, .dtype = dtype}))->identity();
  };
  const std::set<std::string> identities = {identity("mobile/0"), identity("mobile/1"),
                                            identity("mobile/2"), identity("mobile/0", "bf16")};
  EXPECT_EQ(identities.size(), 4u);
  EXPECT_EQ(identity("mobile/0"), identity("mobile/0"));
}

}  // namespace
}  // namespace oxbow::rewards
