// SPDX-License-Identifier: Apache-2.0
#include "services/learner/evaluation/held_out_pictures.h"

#include <ATen/ATen.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "io/diffusers_directory.h"

namespace oxbow::learner {
namespace {

// Promise: Any process draws an evaluation with the same bytes.
TEST(HeldOutPicturesTest, LeasesHaveEveryPlaceOnceWithPromptAndNoiseOfThatPlace) {
  const auto components =
      io::OpenDiffusersDirectory(OXBOW_SOURCE_DIR "/tests/golden/text/pipeline");
  ConditioningCache cache(
      io::EncodedPrompts::Open(*components, {.encoders = {.t5_length = 9}}).value());
  std::vector<v1::Prompt> prompts(3);
  for (uint32_t i = 0; i < 3; ++i) {
    prompts[i].set_id(i + 1);
    prompts[i].set_text(absl::StrCat("text ", i));
  }
  for (const size_t images : {1u, 2u, 7u, 16u}) {
    for (const size_t together : {1u, 4u, 64u}) {
      SCOPED_TRACE(absl::StrCat(images, " images, ", together, " together"));
      auto pictures = HeldOutPictures::Of(prompts, images, together, cache);
      ASSERT_TRUE(pictures.ok()) << pictures.status();
      EXPECT_EQ(pictures->leases.size(), (images + together - 1) / together);
      EXPECT_EQ(pictures->conditioning.size(), std::min<size_t>(images, 3));
      size_t place = 0;
      for (const v1::Lease::Pictures& lease : pictures->leases) {
        EXPECT_EQ(lease.first_place(), place);
        for (const v1::Lease::Picture& picture : lease.pictures()) {
          const SentConditioning sent = (*cache.Get(prompts[place % 3]))->sent;
          EXPECT_EQ(picture.conditioning().sha256(), sent.sha256);
          EXPECT_EQ(picture.conditioning().bytes(), sent.bytes->size());
          const flow::NoiseKey key = HeldOutKeyOf(5, place, 3);
          EXPECT_EQ(picture.noise_group(), (uint64_t{1} << 63) + place % 3);
          EXPECT_EQ(picture.noise_group(), key.group);
          EXPECT_EQ(picture.noise_sample(), place / 3);
          EXPECT_EQ(picture.noise_sample(), key.sample);
          ++place;
        }
      }
      EXPECT_EQ(place, images);
    }
  }
}

}  // namespace
}  // namespace oxbow::learner
