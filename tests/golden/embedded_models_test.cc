// SPDX-License-Identifier: Apache-2.0
// The shipped models in our code and in diffusers and transformers: the same token ids, embeddings
// and velocities within 1e-5 (float32, sums in other orders), and the figures that they ship with.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/file.h"
#include "core/flow/schedule.h"
#include "core/model/architecture.h"
#include "core/model/conditioning.h"
#include "core/model/image_decoder.h"
#include "core/model/image_sampler.h"
#include "core/model/velocity_model.h"
#include "core/reward/synthetic_task.h"
#include "gtest/gtest.h"
#include "io/clip_tokenizer.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"
#include "io/safetensors.h"
#include "io/t5_tokenizer.h"
#include "io/tensor_torch.h"
#include "run/model_facts.h"

namespace oxbow {
namespace {

const std::string kSource = OXBOW_SOURCE_DIR;

struct Bounds {
  double low = 0;
  double high = 1;
};

struct Shipped {
  const char* model;
  const char* task;
  std::vector<std::string> prompts;  // Those of tools/check_embedded_model.py.
  // Measures of a base model: it draws clean pictures, mostly the wrong ones, in all layouts. Each
  // place and frame follows the prompt: a mean would hide one that does not.
  std::map<std::string, Bounds> fit;
};

void PrintTo(const Shipped& shipped, std::ostream* out) { *out << shipped.model; }

model::NamedTensors TensorsOf(const std::string& path) {
  const auto file = io::ReadSafetensors(path);
  EXPECT_TRUE(file.ok()) << file.status();
  model::NamedTensors tensors;
  if (!file.ok()) return tensors;
  for (const auto& [name, bytes] : file->tensors) tensors[name] = *io::ToTorch(bytes);
  return tensors;
}

// [N, length] ids of the tokenizer in a directory, a CLIP's or a T5's.
at::Tensor IdsOf(const std::string& directory, const std::vector<std::string>& prompts,
                 int64_t length) {
  const auto clip = io::ClipTokenizer::Load(directory);
  const auto t5 = io::T5Tokenizer::Load(directory);
  EXPECT_NE(clip.ok(), t5.ok()) << directory;
  std::vector<at::Tensor> rows;
  for (const std::string& prompt : prompts) {
    rows.push_back(
        at::tensor(clip.ok() ? clip->Encode(prompt, length) : t5->Encode(prompt, length)));
  }
  return at::stack(rows);
}

// Promise: The video demo learns its task.
class EmbeddedModelTest : public ::testing::TestWithParam<Shipped> {
 protected:
  model::Conditioning Encoded(const std::vector<std::string>& prompts) const {
    const auto text = io::TextEncoders::Open(components_, {}).value();
    return text->Compose(text->Encode(prompts).value());
  }
  std::unique_ptr<model::VelocityModel> Network() const {
    return transformer_
        ->Make(TensorsOf(directory_ + "/transformer/diffusion_pytorch_model.safetensors"),
               /*adapter=*/nullptr, /*execution=*/{})
        .value();
  }

  const std::string directory_ = kSource + "/models/" + GetParam().model;
  const model::NamedTensors golden_ =
      TensorsOf(kSource + "/tests/golden/models/velocity_" + GetParam().model + ".safetensors");
  const io::DiffusersComponents components_ = io::OpenDiffusersDirectory(directory_).value();
  const std::shared_ptr<const model::Architecture> transformer_ =
      run::ArchitectureOf(components_.at("transformer")).value();
  const at::NoGradGuard no_grad_;
};

void ExpectClose(const at::Tensor& ours, const at::Tensor& golden) {
  ASSERT_EQ(ours.sizes(), golden.sizes());
  EXPECT_LE((ours - golden).abs().max().item<double>(),
            1e-5 * std::max(1.0, golden.abs().max().item<double>()));
}

// Promise: Embedded models are those of diffusers and fit to train. Token ids, prompts and
// velocities of `models/digits`, `digits_flux`, `plates` and `clip` equal those of diffusers and
// transformers, which load each directory, and each is within the bounds of its task.
TEST_P(EmbeddedModelTest, IdsEmbeddingsAndVelocitiesAreThoseOfDiffusers) {
  for (const auto& [name, folder] :
       std::map<std::string, std::string>{{"ids", "/tokenizer"}, {"ids_2", "/tokenizer_2"}}) {
    if (!golden_.contains(name)) continue;
    const at::Tensor& ids = golden_.at(name);
    EXPECT_TRUE(at::equal(IdsOf(directory_ + folder, GetParam().prompts, ids.size(1)), ids));
  }
  const model::Conditioning encoded = Encoded(GetParam().prompts);
  model::Conditioning golden;
  for (const char* part : {model::kPromptTokens, model::kPooledPrompt}) {
    if (!golden_.contains(part)) continue;
    golden[part] = golden_.at(part);
    ExpectClose(encoded.at(part), golden[part]);
  }
  EXPECT_EQ(golden.size(), encoded.size());
  ExpectClose(Network()->Velocity(golden_.at("x"), golden_.at("sigma"), golden),
              golden_.at("velocity"));
}

// Padding that the model never saw would spoil what it draws.
TEST_P(EmbeddedModelTest, APromptHasTheTokensThatItWasTrainedWith) {
  EXPECT_EQ(io::PromptTokens(components_, /*t5_length=*/0).value(),
            golden_.at(model::kPromptTokens).size(1));
}

TEST_P(EmbeddedModelTest, SchedulerGivesOurGrid) {
  const at::Tensor grid = golden_.at("grid10");
  const std::vector<double> ours =
      flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, /*shift=*/1.0);
  ASSERT_EQ(grid.numel(), static_cast<int64_t>(ours.size()));
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(grid[static_cast<int64_t>(i)].item<double>(), ours[i], 1e-6) << i;
  }
}

// The base model of every example: sharp images, mostly the wrong ones, in all layouts.
// Promise: Embedded models are those of diffusers and fit to train.
TEST_P(EmbeddedModelTest, ShippedModelIsWithinTheBoundsOfItsTask) {
  constexpr int kPerPrompt = 8;
  const std::vector<std::string> held_out = absl::StrSplit(
      ReadFile(kSource + "/configs/prompts/" + GetParam().task + "_eval.txt").value(), '\n',
      absl::SkipWhitespace());
  const std::vector<std::vector<Image8>> images = model::SampleFrames(
      *Network(), *model::MakePixelDecoder(),
      model::OdeSpec(flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, /*shift=*/1.0)),
      model::RequestsFor(Encoded(held_out), kPerPrompt, /*seed=*/1), golden_.at("x")[0].sizes());
  const auto report = reward::TaskOfPrompt(held_out[0])->NewReport();
  for (size_t i = 0; i < images.size(); ++i) {
    ASSERT_TRUE(report->Add(held_out[i / kPerPrompt], reward::PixelsOf(images[i])).ok());
  }
  size_t within = 0;
  for (const reward::Measure& measure : report->Report()) {
    const auto bounds = GetParam().fit.find(measure.name);
    if (bounds == GetParam().fit.end()) continue;
    ++within;
    EXPECT_GE(measure.value, bounds->second.low) << measure.name;
    EXPECT_LE(measure.value, bounds->second.high) << measure.name;
  }
  EXPECT_EQ(within, GetParam().fit.size());
}

const std::vector<std::string> kNumbers = {"text 000", "text 009", "text 473", "text 820",
                                           "text 999"};
const std::map<std::string, Bounds> kDigitsFit = {
    {"reward", {.low = 0.40, .high = 0.62}}, {"speckle", {.high = 0.03}},
    {"minority_share", {.low = 0.3}},        {"digit_1_accuracy", {.low = 0.45}},
    {"digit_2_accuracy", {.low = 0.45}},     {"digit_3_accuracy", {.low = 0.45}}};
const std::map<std::string, Bounds> kPlatesFit = {
    {"reward", {.low = 0.40, .high = 0.62}}, {"speckle", {.high = 0.04}},
    {"unreadable", {.high = 0.03}},          {"minority_share", {.low = 0.2}},
    {"digit_1_accuracy", {.low = 0.45}},     {"digit_2_accuracy", {.low = 0.45}},
    {"digit_3_accuracy", {.low = 0.45}}};
const std::map<std::string, Bounds> kClipFit = {{"reward", {.low = 0.30, .high = 0.62}},
                                                {"unreadable", {.high = 0.28}},
                                                {"steady", {.low = 0.28}},
                                                {"speckle", {.high = 0.04}},
                                                {"minority_share", {.low = 0.3}},
                                                {"minority_way_share", {.low = 0.25}},
                                                {"digit_1_accuracy", {.low = 0.28}},
                                                {"digit_2_accuracy", {.low = 0.28}},
                                                {"frame_1_accuracy", {.low = 0.28}},
                                                {"frame_2_accuracy", {.low = 0.28}},
                                                {"frame_3_accuracy", {.low = 0.28}}};

INSTANTIATE_TEST_SUITE_P(
    Of, EmbeddedModelTest,
    ::testing::Values(
        Shipped{"digits", "digits", kNumbers, kDigitsFit},
        Shipped{"digits_flux", "digits", kNumbers, kDigitsFit},
        Shipped{"plates",
                "plates",
                {"text \"000\"", "text \"009\"", "text \"473\"", "text \"820\"", "text \"999\""},
                kPlatesFit},
        Shipped{"clip", "clip", {"clip 00", "clip 09", "clip 47", "clip 82", "clip 99"}, kClipFit}),
    [](const auto& info) { return std::string(info.param.model); });

}  // namespace
}  // namespace oxbow
