// SPDX-License-Identifier: Apache-2.0
// Our video autoencoder against diffusers': Wan2.1's and Qwen-Image's, at every length.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/sha256.h"
#include "core/model/autoencoder_kl_wan.h"
#include "core/model/binding.h"
#include "gtest/gtest.h"
#include "tests/golden/model_golden.h"

namespace oxbow::model {
namespace {

constexpr int kLengths[] = {1, 2, 3, 5};  // In latent frames.

// Promise: A video autoencoder computes what diffusers' does.
class WanAutoencoderGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  WanAutoencoderGoldenTest() : golden_(GetParam()) {
    const auto params = ParseAutoencoderKlWanConfig(golden_.config);
    EXPECT_TRUE(params.ok()) << params.status();
    architecture_ = *ReadDecoder(golden_.config);
    NamedTensors of_decoder;
    for (const auto& [name, tensor] : golden_.weights) {
      if (architecture_->InDecoder(name)) of_decoder[name] = tensor;
    }
    auto model = MakeAutoencoderKlWan(*params, of_decoder);
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  const at::Tensor& Latents(int length) const { return golden_.in.at(absl::StrCat("z", length)); }
  const at::Tensor& Videos(int length) const {
    return golden_.out.at(absl::StrCat("videos", length));
  }

  const Golden golden_;
  std::shared_ptr<const DecoderArchitecture> architecture_;
  std::unique_ptr<AutoencoderKlWan> model_;
};

TEST_P(WanAutoencoderGoldenTest, VideosAreThoseOfDiffusersAtEveryLength) {
  EXPECT_TRUE(CheckFit(architecture_->shapes(), golden_.weights).ok());
  for (const int length : kLengths) {
    SCOPED_TRACE(length);
    ExpectClose(model_->Videos(Latents(length)), Videos(length));
    EXPECT_EQ(Videos(length).size(2), 1 + (length - 1) * architecture_->factors().time);
    EXPECT_EQ(Videos(length).size(3), Latents(length).size(3) * architecture_->factors().space);
  }
}

TEST_P(WanAutoencoderGoldenTest, BytesAreTheRoundedVideos) {
  for (const int length : kLengths) {
    const at::Tensor bytes = model_->Decode(Latents(length));
    ASSERT_EQ(bytes.scalar_type(), at::kByte);
    const at::Tensor exact = ((Videos(length) / 2 + 0.5) * 255).permute({0, 2, 3, 4, 1});
    ASSERT_EQ(bytes.sizes(), exact.sizes());
    EXPECT_LE((bytes.to(at::kFloat) - exact).abs().max().item<double>(), 0.5 + 2e-3);
  }
}

TEST_P(WanAutoencoderGoldenTest, FramesDependOnEarlierOnesAndRowsOnThemselvesAlone) {
  const at::Tensor all = model_->Decode(Latents(5));
  const at::Tensor first = model_->Decode(Latents(5).narrow(2, 0, 3));
  EXPECT_TRUE(at::equal(first, all.narrow(1, 0, first.size(1))));
  EXPECT_TRUE(at::equal(model_->Decode(Latents(5).narrow(0, 1, 1)), all.narrow(0, 1, 1)));
}

TEST_P(WanAutoencoderGoldenTest, AnImagesLatentIsOneFrame) {
  const at::Tensor videos = model_->Decode(Latents(1));
  const at::Tensor images = model_->Decode(Latents(1).squeeze(2));
  EXPECT_TRUE(at::equal(images, videos.squeeze(1)));
  EXPECT_EQ(images.dim(), 4);
}

INSTANTIATE_TEST_SUITE_P(Configs, WanAutoencoderGoldenTest,
                         ::testing::ValuesIn(GoldenNames("wanvae")),
                         [](const auto& info) { return info.param; });

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WanAutoencoderGoldenTest);

// Promise: A video autoencoder computes what diffusers' does. Videos of eight small random
// autoencoders of Wan2.1 and Qwen-Image equal diffusers' within 1e-5 at four lengths. The first
// frames of a longer video and each row of a batch have the same bits alone. Memory beside the
// video does not grow with its length. A config of another autoencoder is refused by its key.
TEST(PublishedVideoAutoencodersTest, HaveTheTensorsThatDiffusersGivesThem) {
  const auto text = ReadFile(OXBOW_SOURCE_DIR "/tests/golden/models/published_wan.json");
  ASSERT_TRUE(text.ok()) << text.status();
  const nlohmann::json table = nlohmann::json::parse(*text);
  for (const auto& [name, model] : table.items()) {
    const auto architecture = ReadDecoder(nlohmann::json({{"_class_name", name}}).dump());
    ASSERT_TRUE(architecture.ok()) << architecture.status();
    std::string lines;
    for (const auto& [tensor, shape] : (*architecture)->shapes()) {
      absl::StrAppend(&lines, tensor, " ", absl::StrJoin(shape, ","), "\n");
    }
    EXPECT_EQ((*architecture)->shapes().size(), model["tensors"].get<size_t>()) << name;
    EXPECT_EQ(Sha256Hex(lines), model["sha256"].get<std::string>()) << name;
  }
}

}  // namespace
}  // namespace oxbow::model
