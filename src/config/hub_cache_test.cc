// SPDX-License-Identifier: Apache-2.0
// The cache's layout is that of huggingface_hub 1.x: refs/main holds a commit, snapshots its files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "config/file_paths.h"
#include "config/run_config.h"

namespace oxbow::config {
namespace {

namespace fs = std::filesystem;

constexpr char kCommit[] = "b940f670f0eda2d07fbb75229e779da1ad11eb80";

// Promise: One command gets all that a run names by ids of the Hub.
class HubCacheTest : public ::testing::Test {
 protected:
  HubCacheTest() {
    fs::remove_all(cache_);
    fs::create_directories(snapshot_);
    fs::create_directories(model_ / "refs");
    std::ofstream(model_ / "refs" / "main") << kCommit;
  }
  ~HubCacheTest() override { fs::remove_all(cache_); }

  const fs::path cache_ = fs::path(::testing::TempDir()) /
                          ("hub_cache_" + std::to_string(::getpid()) +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const fs::path model_ = cache_ / "models--org--a.model-1";
  const fs::path snapshot_ = model_ / "snapshots" / kCommit;
  const std::vector<std::string> environment_ = {"HF_HUB_CACHE=" + cache_.string()};
};

TEST_F(HubCacheTest, AnIdIsTheSnapshotThatWasDownloaded) {
  EXPECT_EQ(FetchedModel("org/a.model-1", environment_), snapshot_);
  EXPECT_EQ(FetchedModel("org/a.model-1@main", environment_), snapshot_);
  EXPECT_EQ(FetchedModel(std::string("org/a.model-1@") + kCommit, environment_), snapshot_);
}

TEST_F(HubCacheTest, PromptsAreFilesAndDirectoriesOfADataset) {
  const fs::path dataset = cache_ / "datasets--org--set";
  const fs::path snapshot = dataset / "snapshots" / kCommit;
  fs::create_directories(snapshot / "sets");
  fs::create_directories(dataset / "refs");
  std::ofstream(dataset / "refs" / "v2") << kCommit;
  std::ofstream(snapshot / "sets" / "train.txt") << "a red cup\n";
  const std::string all = "hf://datasets/org/set@v2";
  const auto resolved = LoadRunConfig({},
                                      {"prompts.train=" + all + "/sets/train.txt",
                                       "prompts.eval=" + all + "/sets", "model.path=org/set"},
                                      environment_);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->config.prompts().train(), snapshot / "sets" / "train.txt");
  EXPECT_EQ(resolved->config.prompts().eval(), snapshot / "sets");
  EXPECT_EQ(resolved->config.model().path(), "org/set") << "a model is no dataset";
  EXPECT_EQ(FetchedModel(all, environment_), snapshot);
  for (const std::string& path : {all + "/sets/eval.txt", all + "/../../refs", all + "//refs",
                                  std::string("hf://datasets/org"), std::string("hf://org/set")}) {
    EXPECT_EQ(FetchedModel(path, environment_), path);
  }
}

// With another HF_HOME, as on another machine: a run that was started with an id goes on.
TEST_F(HubCacheTest, ASnapshotThatLiesInAnotherCacheByNowIsFoundAgain) {
  const fs::path before = "/nowhere/hub/models--org--a.model-1";
  const fs::path file = cache_ / "config.resolved.yaml";
  std::ofstream(file) << "model:\n  path: " << (before / "snapshots" / kCommit).string()
                      << "\nprompts:\n  train: /nowhere/datasets--org--set/snapshots/1/a.txt\n";
  fs::create_directories(cache_ / "datasets--org--set" / "snapshots" / "1");
  std::ofstream(cache_ / "datasets--org--set" / "snapshots" / "1" / "a.txt") << "a red cup\n";
  const auto again = LoadRunConfig(file, {}, environment_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->config.model().path(), snapshot_);
  EXPECT_EQ(again->config.prompts().train(), cache_ / "datasets--org--set/snapshots/1/a.txt");
  const std::string other = before / "snapshots" / "another_commit";
  EXPECT_EQ(FetchedModel(other, environment_), other) << "other weights";
}

TEST_F(HubCacheTest, WhatTheCacheLacksStaysAsItIs) {
  fs::create_directories(cache_ / "x");  // Where the last path below leads, from the snapshots.
  for (const char* path : {"org/other", "org/a.model-1@v2", "org/a.model-1@", "org", "a/b/c", "",
                           "/org/a.model-1", "org/../a.model-1", "org/a.model-1@../../x"}) {
    EXPECT_EQ(FetchedModel(path, environment_), path);
  }
  fs::remove(model_ / "refs" / "main");
  EXPECT_EQ(FetchedModel("org/a.model-1", environment_), "org/a.model-1");
}

TEST_F(HubCacheTest, TheCacheIsWhereTheHubsOwnToolsLook) {
  const std::string cache = cache_.string();
  fs::create_directories(cache_ / "home");
  fs::create_symlink(cache_, cache_ / "home" / "hub");
  const std::string of_home = cache + "/home/hub/models--org--a.model-1/snapshots/" + kCommit;
  EXPECT_EQ(FetchedModel("org/a.model-1", {"HOME=/nowhere", "HF_HOME=" + cache + "/home"}),
            of_home);
  fs::create_directories(cache_ / ".cache");
  fs::create_symlink(cache_ / "home", cache_ / ".cache" / "huggingface");
  const std::string below = "/huggingface/hub/models--org--a.model-1/snapshots/";
  EXPECT_EQ(FetchedModel("org/a.model-1", {"HOME=" + cache}), cache + "/.cache" + below + kCommit);
  EXPECT_EQ(FetchedModel("org/a.model-1", {"HOME=/nowhere", "XDG_CACHE_HOME=" + cache + "/.cache"}),
            cache + "/.cache" + below + kCommit);
}

TEST_F(HubCacheTest, ARunTakesIdsAndItsResolvedConfigHasTheSnapshot) {
  const auto resolved =
      LoadRunConfig({},
                    {"model.path=org/a.model-1", "model.lora.path=org/a.model-1",
                     "reward.scorers=[{name: clip, model: org/a.model-1, head: org/a.model-1, "
                     "tokenizer: org/a.model-1}]"},
                    environment_);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->config.model().path(), snapshot_);
  EXPECT_EQ(resolved->config.model().lora().path(), snapshot_);
  const v1::ScorerConfig& scorer = resolved->config.reward().scorers(0);
  EXPECT_EQ(scorer.model(), snapshot_);
  EXPECT_EQ(scorer.head(), snapshot_);
  EXPECT_EQ(scorer.tokenizer(), snapshot_);
}

}  // namespace
}  // namespace oxbow::config
