// SPDX-License-Identifier: Apache-2.0
// The client here is a program of the test: it writes down how it was called, and makes a cache as
// huggingface_hub lays it out. The real one takes several names of files as patterns (0.34, 2.4).
#include "cli/plan/fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kRun[] =
    "recipe: digits-op-grpo\n"
    "model: {path: org/a-model@v2}\n"
    "reward:\n"
    "  terms: [{name: pickscore, weight: 1}]\n"
    "  observed: [pickscore_rank]\n"
    "  scorers: [{name: pickscore, model: yuvalkirstain/PickScore_v1},\n"
    "            {name: pickscore_rank, model: yuvalkirstain/PickScore_v1}]\n";

// Prompts of a file, and of a directory.
constexpr char kPromptKeys[] =
    "prompts:\n"
    "  train: hf://datasets/org/prompts@v2/sets/train.txt\n"
    "  eval: hf://datasets/org/prompts@v2/sets\n";

// Makes org/a-model of two components, and of any other repository weights and a tokenizer.
constexpr char kClient[] =
    "#!/bin/sh\n"
    "echo \"$@\" >> \"$HF_HUB_CACHE/calls\"\n"
    "case \" $* \" in *' --repo-type dataset '*) kind=datasets;; *) kind=models;; esac\n"
    "repository=\"$HF_HUB_CACHE/$kind--$(echo \"$2\" | sed 's,/,--,')\"\n"
    "rm -rf \"$repository/blobs\"\n"
    "mkdir -p \"$repository/refs\" \"$repository/snapshots/abc/transformer\"\n"
    "printf abc > \"$repository/refs/main\"; printf abc > \"$repository/refs/v2\"\n"
    "cd \"$repository/snapshots/abc\"\n"
    "printf '{\"_class_name\":\"X\",\"transformer\":[\"diffusers\",\"T\"],\"vae\":[null,null]}' "
    "> model_index.json\n"
    "touch model.safetensors vocab.json\n"
    "[ $kind = models ] || { mkdir -p sets; echo 'a red cup' > sets/train.txt; }\n";

// Promise: One command gets all that a run names by ids of the Hub. `oxbow fetch` has the Hub's own
// client get model, rewards, tokenizers and prompts, of each repository the part that is read, says
// what the cache has whole, and fetches again what is there in part. Without a client it prints the
// commands. A CLIP reward whose model comes without a tokenizer takes the named one, else the
// published one of the cache; without it, the error is the command that gets it.
class FetchTest : public ::testing::Test {
 protected:
  FetchTest() {
    fs::create_directories(scratch_.path() / "bin");
    fs::create_directories(scratch_.path() / "hub");
    std::ofstream(scratch_.path() / "run.yaml") << kRun;
  }

  void AddProgram(const std::string& name, const std::string& script) {
    std::ofstream(scratch_.path() / "bin" / name) << script;
    fs::permissions(scratch_.path() / "bin" / name, fs::perms::owner_all);
  }

  absl::Status Run(bool print = false) {
    out_.str("");
    return Fetch({.file = (scratch_.path() / "run.yaml").string(), .set = set_, .print = print},
                 {"HF_HUB_CACHE=" + (scratch_.path() / "hub").string(),
                  "PATH=" + (scratch_.path() / "bin").string() + search_},
                 out_);
  }

  std::string Calls() {
    const auto calls = ReadFile(scratch_.path() / "hub" / "calls");
    fs::remove(scratch_.path() / "hub" / "calls");
    return calls.value_or("");
  }

  testing::ScopedDirectory scratch_;
  std::vector<std::string> set_ = {
      "prompts.train=" OXBOW_SOURCE_DIR "/configs/prompts/digits_train.txt",
      "prompts.eval=" OXBOW_SOURCE_DIR "/configs/prompts/digits_eval.txt"};
  std::string search_ = ":/usr/bin:/bin";
  std::ostringstream out_;
};

TEST_F(FetchTest, TheHubsClientGetsThePartsThatARunReadsAndWhatIsThereIsSaid) {
  AddProgram("hf", kClient);
  const absl::Status first = Run();
  ASSERT_TRUE(first.ok()) << first;
  EXPECT_THAT(
      out_.str(),
      AllOf(HasSubstr("model.path: org/a-model@v2 is to be fetched\n"),
            HasSubstr("reward.scorers.pickscore.model, reward.scorers.pickscore_rank.model: "
                      "yuvalkirstain/PickScore_v1 is to be fetched\n"),
            HasSubstr("reward.scorers.pickscore_rank.tokenizer: "
                      "laion/CLIP-ViT-H-14-laion2B-s32B-b79K is to be fetched\n"),
            HasSubstr("all is there: oxbow validate ")));
  const std::string calls = Calls();
  EXPECT_THAT(calls, HasSubstr("download org/a-model model_index.json scheduler/* text_encoder/*"));
  EXPECT_THAT(calls, HasSubstr("transformer/* vae/* --revision v2\n"));
  EXPECT_THAT(calls, HasSubstr("download yuvalkirstain/PickScore_v1 *.json *.safetensors *.txt\n"));
  EXPECT_THAT(calls, HasSubstr("download laion/CLIP-ViT-H-14-laion2B-s32B-b79K tokenizer.json "
                               "tokenizer_config.json vocab.json merges.txt"));
  EXPECT_EQ(std::count(calls.begin(), calls.end(), '\n'), 3);

  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(),
              HasSubstr("org/a-model@v2 is in the cache: " + (scratch_.path() / "hub").string()));
  EXPECT_THAT(out_.str(), Not(HasSubstr("laion"))) << "this PickScore has a tokenizer of its own";
  EXPECT_EQ(Calls(), "") << "nobody was asked";
}

TEST_F(FetchTest, WhatIsThereInPartIsFetchedAgain) {
  AddProgram("hf", kClient);
  ASSERT_TRUE(Run().ok());
  Calls();
  const fs::path repository = scratch_.path() / "hub" / "models--org--a-model";
  fs::create_directories(repository / "blobs");
  std::ofstream(repository / "blobs" / "1234.incomplete") << "half";
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(Calls(), HasSubstr("download org/a-model "));
  const fs::path transformer = repository / "snapshots" / "abc" / "transformer";
  const fs::path index = transformer / "diffusion_pytorch_model.safetensors.index.json";
  std::ofstream(index) << "{\"weight_map\":{\"a\":\"part-1.safetensors\"}}";
  EXPECT_TRUE(absl::IsUnavailable(Run())) << "the client says that all is well, and it is not";
  EXPECT_THAT(Calls(), HasSubstr("download org/a-model "));
  std::ofstream(transformer / "part-1.safetensors") << "x";
  EXPECT_TRUE(Run().ok());
  fs::remove_all(transformer);
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(Calls(), HasSubstr("download org/a-model "));
}

TEST_F(FetchTest, PromptsOfADatasetComeWithTheModel) {
  AddProgram("hf", kClient);
  set_.clear();
  std::ofstream(scratch_.path() / "run.yaml", std::ios::app) << kPromptKeys;
  const absl::Status first = Run();
  ASSERT_TRUE(first.ok()) << first;
  EXPECT_THAT(out_.str(), HasSubstr("prompts.train: hf://datasets/org/prompts@v2/sets/train.txt is "
                                    "to be fetched\n"));
  const std::string calls = Calls();
  EXPECT_THAT(calls, HasSubstr("download org/prompts sets/train.txt --repo-type dataset "
                               "--revision v2\n"));
  EXPECT_THAT(calls, HasSubstr("download org/prompts sets/*.txt sets/*.jsonl --repo-type dataset"));
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("/snapshots/abc/sets/train.txt\n"),
                                HasSubstr("/snapshots/abc/sets\n")));
  EXPECT_EQ(Calls(), "") << "nobody was asked";
}

TEST_F(FetchTest, WithoutAClientTheCommandsArePrinted) {
  search_ = "";
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("pip install huggingface_hub"));
  EXPECT_THAT(out_.str(),
              HasSubstr("\nhf download yuvalkirstain/PickScore_v1 '*.json' '*.safetensors' '*.txt'"
                        "\n"));
  EXPECT_THAT(out_.str(), HasSubstr("\nhf download org/a-model model_index.json 'scheduler/*'"));
  AddProgram("hf", kClient);
  search_ = ":/usr/bin:/bin";
  ASSERT_TRUE(Run(/*print=*/true).ok());
  EXPECT_THAT(out_.str(), HasSubstr("\nhf download org/a-model "));
  EXPECT_EQ(Calls(), "");
}

TEST_F(FetchTest, APythonWithTheModuleIsAClientAndAFailureNamesTheRepository) {
  search_ = "";
  AddProgram("python3", "#!/bin/sh\n[ \"$2\" = 'import huggingface_hub' ]\n");
  const absl::Status failed = Run();
  EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()),
              AllOf(HasSubstr("org/a-model@v2 was not fetched"), HasSubstr("exit code 1"),
                    HasSubstr("hf auth login")));
  AddProgram("python3", "#!/bin/sh\nexit 1\n");
  EXPECT_THAT(std::string(Run().message()), HasSubstr("no client of the Hub"));
}

TEST_F(FetchTest, WhatNoIdNamesIsNamedWithItsPlaceAndWhatWasPublished) {
  AddProgram("hf", kClient);
  std::ofstream(scratch_.path() / "run.yaml")
      << "recipe: digits-op-grpo\n"
         "model: {path: org/a-model@v2}\n"
         "reward:\n"
         "  terms: [{name: geneval, weight: 1}, {name: hpsv2, weight: 1}]\n"
         "  scorers: [{name: geneval, model: mask2former, head: openai/clip-vit-large-patch14},\n"
         "            {name: hpsv2, model: HPS_v2.1}]\n";
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 files or directories"));
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("reward.scorers.geneval.model: there is nothing at mask2former"),
                    HasSubstr("mask2former_swin-s-p4-w7-224_lsj_8x2_50e_coco"),
                    HasSubstr("reward.scorers.hpsv2.model: there is nothing at HPS_v2.1"),
                    HasSubstr("HPS_v2.1_compressed.pt of xswu/HPSv2 through `oxbow convert"),
                    Not(HasSubstr("all is there"))));
  EXPECT_THAT(Calls(), HasSubstr("download org/a-model ")) << "the rest is fetched nonetheless";
  EXPECT_TRUE(Run(/*print=*/true).ok());
}

TEST_F(FetchTest, ARunWithoutIdsNeedsNobody) {
  std::ofstream(scratch_.path() / "run.yaml")
      << "recipe: digits-op-grpo\nmodel: {path: " OXBOW_SOURCE_DIR "/models/digits}\n";
  search_ = "";
  EXPECT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("names nothing by an id"));
}

}  // namespace
}  // namespace oxbow::cli
