// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate/picture_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "run/prompt.h"
#include "tests/golden/reward_golden.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;

SetPrompt Prompt(const std::string& text, size_t number, const std::string& group = "",
                 size_t in_file = 0) {
  return {run::MakePrompt(text, R"({"prompt":"x","tag":"colors"})"), group, number, in_file};
}

std::vector<std::vector<Image8>> Pictures(size_t count) {
  std::vector<std::vector<Image8>> pictures;
  for (uint32_t i = 0; i < count; ++i) {
    pictures.push_back({reward::DrawnPicture("scene", i, 24, 16, 3)});
  }
  return pictures;
}

class PictureFolderTest : public ::testing::Test {
 protected:
  PictureFolder Folder(v1::PictureLayout layout, size_t pictures) {
    return PictureFolder::Create(scratch_.path(), layout, pictures).value();
  }
  bool Exists(const std::string& path) { return std::filesystem::exists(scratch_.path() / path); }
  oxbow::testing::ScopedDirectory scratch_;
};

TEST_F(PictureFolderTest, GenevalHasAFolderForEachPromptWithItsMetadata) {
  const PictureFolder folder = Folder(v1::PICTURE_LAYOUT_GENEVAL, 2);
  const SetPrompt prompt = Prompt("a/b", 12, "colors");
  ASSERT_TRUE(folder.Write(prompt, Pictures(2)).ok());
  EXPECT_TRUE(Exists("00012/samples/0000.png") && Exists("00012/samples/0001.png"));
  EXPECT_EQ(*ReadFile(scratch_.path() / "00012/metadata.jsonl"),
            "{\"prompt\":\"x\",\"tag\":\"colors\"}\n");
  const auto read = folder.Read(prompt);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Pictures(2));
}

TEST_F(PictureFolderTest, Hpsv2HasOneJpegOfEachPromptByStyle) {
  const PictureFolder folder = Folder(v1::PICTURE_LAYOUT_HPSV2, 1);
  const SetPrompt prompt = Prompt("a cat", 803, "anime", 3);
  ASSERT_TRUE(folder.Write(prompt, Pictures(1)).ok());
  EXPECT_TRUE(Exists("anime/00003.jpg"));
  EXPECT_EQ(folder.Read(prompt)->front().front().width, 24);
  EXPECT_THAT(
      std::string(PictureFolder::Create("x", v1::PICTURE_LAYOUT_HPSV2, 4).status().message()),
      HasSubstr("one picture of each prompt, the set has 4"));
}

TEST_F(PictureFolderTest, T2iCompbenchCountsOnOverTheCategory) {
  const PictureFolder folder = Folder(v1::PICTURE_LAYOUT_T2I_COMPBENCH, 2);
  const SetPrompt prompt = Prompt("a red book", 300, "color", 5);
  ASSERT_TRUE(folder.Write(prompt, Pictures(2)).ok());
  EXPECT_TRUE(Exists("color/samples/a red book_000010.png"));
  EXPECT_TRUE(Exists("color/samples/a red book_000011.png"));
  EXPECT_EQ(*folder.Read(prompt), Pictures(2));
  for (const std::string& text : {std::string("red/green"), std::string(300, 'x')}) {
    EXPECT_EQ(folder.PathOf(Prompt(text, 0), 0).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(PictureFolderTest, WhatIsMissingOrDamagedIsNamed) {
  const PictureFolder folder = Folder(v1::PICTURE_LAYOUT_GENEVAL, 1);
  const SetPrompt prompt = Prompt("a", 7);
  EXPECT_EQ(folder.Read(prompt).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(folder.Read(prompt).status().message()),
              HasSubstr("00007/samples/0000.png"));
  ASSERT_TRUE(folder.Write(prompt, Pictures(1)).ok());
  ASSERT_TRUE(WriteFileAtomically(scratch_.path() / "00007/samples/0000.png", "\x89PNG cut").ok());
  EXPECT_THAT(std::string(folder.Read(prompt).status().message()),
              HasSubstr("00007/samples/0000.png"));
}

}  // namespace
}  // namespace oxbow::cli
