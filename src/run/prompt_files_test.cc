// SPDX-License-Identifier: Apache-2.0
// Flow-GRPO's and Flow-Factory's files as they are; a line that is no prompt has its place and fix.
#include "run/prompt_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::run {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr PromptSplit kTrain = PromptSplit::kTrain;
constexpr PromptSplit kHeldOut = PromptSplit::kHeldOut;

class PromptFilesTest : public ::testing::Test {
 protected:
  std::filesystem::path Written(const std::string& name, const std::string& content) {
    const std::filesystem::path path = scratch_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  std::vector<v1::Prompt> Read(const std::filesystem::path& path, PromptSplit split = kTrain) {
    auto prompts = ReadPrompts(path, split);
    EXPECT_TRUE(prompts.ok()) << prompts.status();
    return prompts.ok() ? *prompts : std::vector<v1::Prompt>();
  }
  std::string ErrorOf(const std::string& name, const std::string& content,
                      const PromptLimits& limits = {}) {
    const auto prompts = ReadPrompts(Written(name, content), kTrain, limits);
    EXPECT_EQ(prompts.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(prompts.status().message());
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }

  testing::ScopedDirectory scratch_;
};

std::vector<std::string> TextsOf(const std::vector<v1::Prompt>& prompts) {
  std::vector<std::string> texts;
  for (const v1::Prompt& prompt : prompts) texts.push_back(prompt.text());
  return texts;
}

TEST_F(PromptFilesTest, TextHasOnePromptPerLineWithoutBlanksAndRepeats) {
  // A byte order mark, both line ends, quotes as in Flow-GRPO's OCR set, space that is none of
  // ASCII's, no line feed at the end.
  const auto prompts = Read(Written("train.txt",
                                    "\xef\xbb\xbf"
                                    "A sign that says \"OPEN 24\"\r\n"
                                    "\n"
                                    "\xc2\xa0 une fenêtre, 窓, 🪟 \xe3\x80\x80\n"
                                    "A sign that says \"OPEN 24\"\n"
                                    "   \t\n"
                                    "last"));
  EXPECT_THAT(TextsOf(prompts),
              ElementsAre("A sign that says \"OPEN 24\"", "une fenêtre, 窓, 🪟", "last"));
  for (const v1::Prompt& prompt : prompts) EXPECT_EQ(prompt.metadata_json(), "");
}

TEST_F(PromptFilesTest, GenEvalsMetadataReachesRewardsWhole) {
  const std::string line =
      R"({"tag":"color_attr","include":[{"class":"handbag","count":1,"color":"pink"},)"
      R"({"class":"dog","count":1,"position":["right of",0]}],"exclude":[{"class":"x","count":3}],)"
      R"("prompt":"a photo of a pink handbag left of a dog"})";
  const auto prompts = Read(Written("train_metadata.jsonl", line + "\r\n\n"));
  ASSERT_EQ(prompts.size(), 1u);
  EXPECT_EQ(prompts[0].text(), "a photo of a pink handbag left of a dog");
  EXPECT_EQ(nlohmann::json::parse(prompts[0].metadata_json()), nlohmann::json::parse(line));
}

TEST_F(PromptFilesTest, AnIdIsOfTextAndMetadata) {
  const auto json = Read(Written("a.jsonl",
                                 "{\"prompt\":\"a cat\"}\n"
                                 "{\"prompt\":\"a cat\",\"tag\":\"x\",\"n\":1}\n"
                                 "{ \"n\": 1, \"tag\": \"x\", \"prompt\": \"a cat\" }\n"
                                 "{\"prompt\":\"a cat\",\"tag\":\"y\"}\n"
                                 "{\"prompt\":\"\\u0061 cat\"}\n"));
  ASSERT_EQ(json.size(), 3u) << "other space, order or escapes make no other prompt";
  const auto text = Read(Written("a.txt", "a cat\n"));
  EXPECT_EQ(json[0].id(), text[0].id()) << "a prompt alone is the same in either format";
  EXPECT_NE(json[0].id(), json[1].id());
  EXPECT_NE(json[1].id(), json[2].id());
}

TEST_F(PromptFilesTest, FlowFactorysColumnsAreMetadata) {
  const auto prompts = Read(Written("train.jsonl",
                                    "{\"prompt\":\"a\",\"negative_prompt\":\"blurry\",\"id\":7}\n"
                                    "{\"prompt\":\"b\",\"negative_prompt\":\"\",\"images\":[]}\n"
                                    "{\"prompt\":\"c\",\"image\":null}\n"));
  EXPECT_THAT(TextsOf(prompts), ElementsAre("a", "b", "c"));
  EXPECT_EQ(prompts[0].metadata_json(), R"({"id":7,"negative_prompt":"blurry","prompt":"a"})");
  EXPECT_EQ(CountNegativePrompts(prompts), 1u);
  EXPECT_THAT(ErrorOf("edit.jsonl", "\n{\"prompt\":\"a\",\"image\":\"cat.png\"}\n"),
              HasSubstr("edit.jsonl:2: \"image\": models here see a text alone"));
}

TEST_F(PromptFilesTest, ADirectoryHasAFileForEitherSplit) {
  Written("ocr/train.txt", "ocr train\n");
  Written("ocr/test.txt", "ocr test\n");
  Written("geneval/train_metadata.jsonl", "{\"prompt\":\"geneval train\"}\n");
  Written("geneval/test_metadata.jsonl", "{\"prompt\":\"geneval test\"}\n");
  Written("both/train.txt", "text\n");
  Written("both/train.jsonl", "{\"prompt\":\"json\"}\n");
  const auto read = [&](const char* folder, PromptSplit split) {
    return Read(scratch_.path() / folder, split).at(0).text();
  };
  EXPECT_EQ(read("ocr", kTrain), "ocr train");
  EXPECT_EQ(read("ocr", kHeldOut), "ocr test");
  EXPECT_EQ(read("geneval", kTrain), "geneval train");
  EXPECT_EQ(read("geneval", kHeldOut), "geneval test");
  EXPECT_EQ(read("both", kTrain), "json") << "as Flow-Factory chooses";
  const auto none = ReadPrompts(scratch_.path() / "both", kHeldOut).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(none.message()),
      AllOf(HasSubstr("none of test.jsonl, test_metadata.jsonl, test.txt"), EndsWith("/both")));
}

TEST_F(PromptFilesTest, ABadLineHasItsPlaceAndItsFix) {
  EXPECT_THAT(ErrorOf("a.jsonl", "{\"prompt\":\"a\"}\n\n{\"prompt\":\"b\",\n"),
              HasSubstr("a.jsonl:3: not JSON, at byte 15; a .jsonl file has one"));
  EXPECT_THAT(ErrorOf("b.jsonl", "a plain line\n"), HasSubstr("b.jsonl:1: not JSON"));
  EXPECT_THAT(ErrorOf("c.jsonl", "[\"a\"]\n"), HasSubstr("c.jsonl:1: not a JSON object"));
  EXPECT_THAT(ErrorOf("d.jsonl", "{\"text\":1,\"tag\":\"x\"}\n"),
              HasSubstr("d.jsonl:1: no text under \"prompt\"; the line has: tag, text"));
  EXPECT_THAT(ErrorOf("keys.jsonl", "{\"a\\nb\":1}\n"), HasSubstr("the line has: a\\nb"));
  EXPECT_THAT(ErrorOf("e.jsonl", "{\"prompt\":7}\n"), HasSubstr("e.jsonl:1: no text"));
  EXPECT_THAT(ErrorOf("f.jsonl", "{\"prompt\":\" \"}\n"), HasSubstr("f.jsonl:1: \"prompt\" is em"));
  EXPECT_THAT(ErrorOf("g.jsonl", "{\"prompt\":\"\\ud800\"}\n"), HasSubstr("g.jsonl:1: not JSON"));
  EXPECT_THAT(ErrorOf("h.jsonl", "{\"prompt\":\"a\\u0000b\"}\n"), HasSubstr("zero character"));
  EXPECT_THAT(ErrorOf("i.jsonl", "{\"prompt\":\"a\",\"n\":1e999}\n"), HasSubstr("i.jsonl:1: "));
  EXPECT_THAT(ErrorOf("j.txt", "a\nb\xff\n"), HasSubstr("j.txt:2: not UTF-8"));
  EXPECT_THAT(ErrorOf("k.txt", "\n \n"), HasSubstr("k.txt: holds no prompt"));
  const std::string deep = "{\"prompt\":\"a\",\"x\":" + std::string(100000, '[') + "\n";
  EXPECT_THAT(ErrorOf("l.jsonl", deep), HasSubstr("l.jsonl:1: "));
  const std::string closed =
      "{\"prompt\":\"a\",\"x\":" + std::string(100000, '[') + std::string(100000, ']') + "}\n";
  EXPECT_THAT(ErrorOf("m.jsonl", closed), HasSubstr("m.jsonl:1: nested deeper than 64"));
  EXPECT_EQ(ReadPrompts("/nonexistent.txt", kTrain).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PromptFilesTest, WhatIsKeptIsBounded) {
  EXPECT_THAT(ErrorOf("long.txt", "1234\n12345\n", {.line_bytes_max = 4}),
              HasSubstr("long.txt:2: the line is longer than 4 bytes"));
  EXPECT_THAT(ErrorOf("many.txt", "12\n34\n34\n56\n", {.bytes_max = 4}),
              HasSubstr("many.txt:4: the prompts so far take more than 4 bytes"));
}

TEST_F(PromptFilesTest, AHugeFileTakesTheMemoryOfItsPromptsAlone) {
  constexpr int kMebibytes = 48;
  const std::filesystem::path path = Written("huge.txt", "");
  {
    std::string block;
    for (int i = 0; block.size() < (1 << 20); ++i) {
      absl::StrAppend(&block, "prompt ", i, std::string(1 << 10, 'x'), "\n");
    }
    std::ofstream out(path, std::ios::binary);
    for (int i = 0; i < kMebibytes; ++i) out << block;
  }
  const auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;  // MiB
  };
  const long before = peak();
  EXPECT_GT(Read(path).size(), 1000u);
  EXPECT_LT(peak() - before, kMebibytes / 2);
}

}  // namespace
}  // namespace oxbow::run
