// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/model/drawn_pictures.h"

namespace oxbow::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> WarningsOf(const std::string& model, const std::string& prompt) {
  return PromptWarnings({.model = std::string(OXBOW_SOURCE_DIR "/models/") + model, .run = {}},
                        {prompt});
}

TEST(PromptWarningsTest, WordsOutsideOfAnEmbeddedModelsVocabularyAreNamed) {
  EXPECT_THAT(WarningsOf("digits", "text 473"), IsEmpty());
  EXPECT_THAT(WarningsOf("digits", "a cat on a mat, text 4"),
              ElementsAre(EndsWith("models/digits was not trained on these words, and guesses: "
                                   "cat, mat, on")));
  EXPECT_THAT(WarningsOf("plates", "clip 47"), ElementsAre(HasSubstr("clip")));
}

TEST(PromptWarningsTest, APromptWithoutWordsIsNoted) {
  EXPECT_THAT(WarningsOf("digits", " "), ElementsAre(HasSubstr("a prompt without words")));
}

TEST(PromptWarningsTest, AModelWithoutSuchATokenizerGivesNone) {
  EXPECT_THAT(WarningsOf("clip", "a cat"), IsEmpty());
  EXPECT_THAT(WarningsOf("no-such-model", "a cat"), IsEmpty());
}

}  // namespace
}  // namespace oxbow::cli
