// SPDX-License-Identifier: Apache-2.0
#include "tasks/compose_scorer.h"

#include <gtest/gtest.h>

#include "tasks/compose.h"

namespace oxbow::reward {
namespace {

// Red square in cell 0, blue disc in cell 1.
Image8 RightImage() {
  Image8 image{.width = 16, .height = 16, .channels = 3, .pixels = {}};
  const auto rendered = tasks::RenderArrangement(
      {tasks::Object{0, 0}, tasks::Object{2, 1}, std::nullopt, std::nullopt});
  for (int i = 0; i < tasks::kComposePixels; ++i) {
    for (int channel = 0; channel < 3; ++channel) {
      image.pixels.push_back(rendered[channel * tasks::kComposePixels + i] > 0 ? 255 : 0);
    }
  }
  return image;
}

TEST(ComposeScorerTest, ChannelsAndRowsAreReadInOrder) {
  const Image8 image = RightImage();
  EXPECT_EQ(ScoreOne(*MakeCompose(), "red square left of blue disc", "", image)->value, 1);
  EXPECT_EQ(ScoreOne(*MakeComposeStrict(), "red square left of blue disc", "", image)->value, 1);
  EXPECT_EQ(ScoreOne(*MakeCompose(), "blue square left of red disc", "", image)->value, 0.75);
  EXPECT_EQ(ScoreOne(*MakeComposeStrict(), "red square above blue disc", "", image)->value, 0);
}

TEST(ComposeScorerTest, WhatDoesNotFitIsAnErrorAndNoScore) {
  Image8 grey = RightImage();
  grey.channels = 1;
  EXPECT_EQ(ScoreOne(*MakeCompose(), "red square left of blue disc", "", grey).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ScoreOne(*MakeComposeStrict(), "text 473", "", RightImage()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace oxbow::reward
