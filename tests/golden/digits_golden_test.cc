// The shipped models/digits in our code and in diffusers and transformers: the same token ids,
// embeddings and velocities within 1e-5 (float32, sums in other orders), and the figures that it
// ships with.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "absl/strings/str_split.h"
#include "base/file.h"
#include "core/flow/schedule.h"
#include "core/model/clip_text.h"
#include "core/model/sd3.h"
#include "core/pretrain/digits_tensors.h"
#include "core/pretrain/pretraining.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow {
namespace {

const std::string kModel = OXBOW_SOURCE_DIR "/models/digits";

model::NamedTensors TensorsOf(const std::string& path) {
  const auto file = io::ReadSafetensors(path);
  EXPECT_TRUE(file.ok()) << file.status();
  model::NamedTensors tensors;
  if (!file.ok()) return tensors;
  for (const auto& [name, bytes] : file->tensors) tensors[name] = *io::ToTorch(bytes);
  return tensors;
}

class DigitsGoldenTest : public testing::Test {
 protected:
  const model::NamedTensors golden_ =
      TensorsOf(OXBOW_SOURCE_DIR "/tests/golden/models/digits_velocity.safetensors");
  const model::NamedTensors transformer_ =
      TensorsOf(kModel + "/transformer/diffusion_pytorch_model.safetensors");
  const model::NamedTensors text_ = TensorsOf(kModel + "/text_encoder/model.safetensors");
  const at::NoGradGuard no_grad_;
};

void ExpectClose(const at::Tensor& ours, const at::Tensor& golden) {
  ASSERT_EQ(ours.sizes(), golden.sizes());
  EXPECT_LE((ours - golden).abs().max().item<double>(),
            1e-5 * std::max(1.0, golden.abs().max().item<double>()));
}

TEST_F(DigitsGoldenTest, IdsEmbeddingsAndVelocitiesAreThoseOfDiffusers) {
  const at::Tensor ids =
      task::DigitsTokenIds({{0, 0, 0}, {0, 0, 9}, {4, 7, 3}, {8, 2, 0}, {9, 9, 9}});
  EXPECT_TRUE(at::equal(ids, golden_.at("ids")));

  const auto text_config = ReadFile(kModel + "/text_encoder/config.json");
  const auto encoder =
      model::MakeClipTextEncoder(model::ParseClipTextConfig(text_config.value()).value(), text_);
  ASSERT_TRUE(encoder.ok()) << encoder.status();
  const model::ClipTextOutput encoded = (*encoder)->Encode(ids);
  ExpectClose(encoded.penultimate, golden_.at("tokens"));
  ExpectClose(encoded.pooled, golden_.at("pooled"));

  const auto config = ReadFile(kModel + "/transformer/config.json");
  const auto transformer =
      model::MakeSd3Transformer(model::ParseSd3Config(config.value()).value(), transformer_);
  ASSERT_TRUE(transformer.ok()) << transformer.status();
  ExpectClose((*transformer)
                  ->Velocity(golden_.at("x"), golden_.at("sigma"),
                             {.tokens = golden_.at("tokens"), .pooled = golden_.at("pooled")}),
              golden_.at("velocity"));
}

TEST_F(DigitsGoldenTest, SchedulerGivesOurGrid) {
  const at::Tensor grid = golden_.at("grid10");
  const std::vector<double> ours =
      flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, /*shift=*/1.0);
  ASSERT_EQ(grid.numel(), static_cast<int64_t>(ours.size()));
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(grid[static_cast<int64_t>(i)].item<double>(), ours[i], 1e-6) << i;
  }
}

// The base model of every example: sharp digits, mostly the wrong number, in both rows.
TEST_F(DigitsGoldenTest, ShippedModelPassesItsOwnGate) {
  const auto lines = ReadFile(OXBOW_SOURCE_DIR "/configs/prompts/digits_eval.txt");
  const std::vector<std::string> prompts =
      absl::StrSplit(lines.value(), '\n', absl::SkipWhitespace());
  const auto world = task::TensorsOf(**task::WorldNamed("digits"), prompts);
  ASSERT_TRUE(world.ok()) << world.status();
  const auto report = task::EvaluatePretrained(
      **world, transformer_, text_, prompts, /*per_prompt=*/8,
      flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, /*shift=*/1.0), /*seed=*/1);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE((*world)->CheckBaseModel(*report).ok()) << (*world)->CheckBaseModel(*report);
  EXPECT_GT(task::ValueOf(*report, "minority_row_share"), 0.3);
}

}  // namespace
}  // namespace oxbow
