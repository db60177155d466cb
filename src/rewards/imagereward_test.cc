// SPDX-License-Identifier: Apache-2.0
// ImageReward against a second writing of it in Python, on every model of a directory of
// tools/make_imagereward_goldens.py: OXBOW_SCORER_GOLDENS, or tests/golden/scorers.
#include "rewards/imagereward.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"

namespace oxbow::rewards {
namespace {

namespace fs = std::filesystem;
using reward::Item;
using reward::Scorer;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-4;

fs::path Goldens() {
  const char* directory = std::getenv("OXBOW_SCORER_GOLDENS");
  return fs::path(directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/scorers") /
         "imagereward";
}

std::unique_ptr<Scorer> Open(const std::string& name,
                             const model::exported::NetworkOptions& options = {}) {
  auto scorer = OpenImageReward(Goldens() / name, options);
  EXPECT_TRUE(scorer.ok()) << scorer.status();
  return *std::move(scorer);
}

// A copy of a model that a test may break.
fs::path CopyOf(const std::string& name) {
  const fs::path copy = fs::path(::testing::TempDir()) / "imagereward";
  fs::remove_all(copy);
  fs::copy(Goldens() / name, copy);
  return copy;
}

// Promise: Rewards are those of their projects.
class ImageRewardTest : public ::testing::Test {
 protected:
  ImageRewardTest() {
    const auto file = io::ReadSafetensors(Goldens() / "items.safetensors");
    EXPECT_TRUE(file.ok()) << file.status();
    prompts_ = nlohmann::json::parse(file->metadata.at("prompts")).get<std::vector<std::string>>();
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const io::TensorBytes& tensor = file->tensors.at("image." + std::to_string(i));
      images_.push_back({static_cast<int>(tensor.shape[1]),
                         static_cast<int>(tensor.shape[0]),
                         static_cast<int>(tensor.shape[2]),
                         {tensor.data.begin(), tensor.data.end()}});
    }
    for (size_t i = 0; i < prompts_.size(); ++i) {
      items_.push_back({.prompt = prompts_[i], .frames = {&images_[i], 1}});
    }
  }

  std::vector<double> ScoresOf(Scorer& scorer) const {
    std::vector<double> values;
    for (const auto& score : scorer.ScoreBatch(items_)) {
      EXPECT_TRUE(score.ok()) << score.status();
      values.push_back(score.ok() ? score->value : NAN);
    }
    return values;
  }

  std::vector<std::string> prompts_;
  std::vector<Image8> images_;
  std::vector<Item> items_;
};

TEST_F(ImageRewardTest, ScoresAreThoseOfThePapersNetwork) {
  const auto golden = nlohmann::json::parse(*ReadFile(Goldens() / "scores.json"));
  ASSERT_GE(golden.size(), 6u);
  double most = 0;
  for (const auto& [name, scores] : golden.items()) {
    const std::vector<double> ours = ScoresOf(*Open(name));
    const auto theirs = scores.get<std::vector<double>>();
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_NEAR(ours[i], theirs[i], kTolerance) << "model " << name << ", item " << i;
      most = std::max(most, std::abs(ours[i] - theirs[i]));
    }
  }
  std::cout << "imagereward: max difference " << most << "\n";
}

TEST_F(ImageRewardTest, AnItemScoresTheSameAloneAndAmongOthers) {
  const std::vector<Item> few = items_;
  while (items_.size() < 70) items_.insert(items_.end(), few.begin(), few.end());  // Three passes.
  for (const std::string name : {"0", "1", "2", "3", "4", "5"}) {
    const auto scorer = Open(name);
    const std::vector<double> many = ScoresOf(*scorer);
    std::vector<double> alone;
    for (const Item& item : few) {
      const auto score = scorer->ScoreBatch({&item, 1});
      ASSERT_TRUE(score[0].ok()) << score[0].status();
      alone.push_back(score[0]->value);
    }
    for (size_t i = 0; i < many.size(); ++i) EXPECT_NEAR(many[i], alone[i % few.size()], 1e-5);
  }
}

TEST_F(ImageRewardTest, ABadImageCostsOnlyItsOwnScore) {
  const auto scorer = Open("0");
  const std::vector<double> sound = ScoresOf(*scorer);
  const Image8 short_of_bytes{10, 10, 3, {1, 2, 3}}, none;
  for (const Image8* const bad : {&short_of_bytes, &none}) {
    items_[2].frames = {bad, 1};
    const auto scores = scorer->ScoreBatch(items_);
    EXPECT_EQ(scores[2].status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(scores[2].status().message()),
                HasSubstr("ImageReward takes no such image"));
    for (size_t i = 0; i < items_.size(); ++i) {
      if (i == 2) continue;
      EXPECT_NEAR(scores[i]->value, sound[i], 1e-5);
    }
  }
}

TEST_F(ImageRewardTest, Bfloat16ScoresNearly) {
  const std::vector<double> exact = ScoresOf(*Open("2"));
  const std::vector<double> rough = ScoresOf(*Open("2", {.compute = at::kBFloat16}));
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rough[i], exact[i], 0.1);
  EXPECT_NE(rough, exact);
}

TEST_F(ImageRewardTest, IdentitiesTellModelsTypesAndVocabulariesApart) {
  const fs::path other = CopyOf("0");
  std::string vocabulary = *ReadFile(other / "vocab.txt");
  vocabulary.replace(vocabulary.find("\nphoto\n"), 7, "\nphoti\n");
  ASSERT_TRUE(WriteFileAtomically(other / "vocab.txt", vocabulary).ok());
  const std::set<std::string> identities = {Open("0")->facts().identity,
                                            Open("1")->facts().identity,
                                            Open("0", {.compute = at::kBFloat16})->facts().identity,
                                            (*OpenImageReward(other))->facts().identity};
  EXPECT_EQ(identities.size(), 4u);
  EXPECT_EQ(Open("0")->facts().identity, Open("0")->facts().identity);
}

TEST_F(ImageRewardTest, DefectsOfAModelAreNamed) {
  EXPECT_EQ(OpenImageReward(Goldens() / "absent").status().code(), absl::StatusCode::kNotFound);
  const auto refused = [](const fs::path& directory) {
    const absl::Status status = OpenImageReward(directory).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(directory.string()));
    return std::string(status.message());
  };
  fs::path broken = CopyOf("0");
  std::string vocabulary = *ReadFile(broken / "vocab.txt");
  ASSERT_TRUE(WriteFileAtomically(broken / "vocab.txt", vocabulary + "more\n").ok());
  EXPECT_THAT(refused(broken), HasSubstr("but the network embeds"));
  broken = CopyOf("0");
  auto config = nlohmann::json::parse(*ReadFile(broken / "config.json"));
  config["patch_size"] = 5;
  ASSERT_TRUE(WriteFileAtomically(broken / "config.json", config.dump()).ok());
  EXPECT_THAT(refused(broken), HasSubstr("patch_size is 5, and the graph is for"));
  broken = CopyOf("0");
  fs::remove(broken / "graph.json.gz");  // And none that comes with oxbow is so small.
  EXPECT_THAT(refused(broken), HasSubstr("export_model export ImageReward --config"));
  broken = CopyOf("0");
  fs::copy_file(Goldens() / "1" / "model.safetensors", broken / "model.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(refused(broken), HasSubstr("blip."));
}

}  // namespace
}  // namespace oxbow::rewards
