// The shipped models in our code and in diffusers and transformers: the same token ids, embeddings
// and velocities within 1e-5 (float32, sums in other orders), and the figures that they ship with.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "absl/strings/str_split.h"
#include "base/file.h"
#include "core/flow/schedule.h"
#include "core/model/clip_text.h"
#include "core/model/sd3.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "tasks/pretraining/pretraining.h"
#include "tasks/pretraining/task_tensors.h"

namespace oxbow {
namespace {

const std::string kSource = OXBOW_SOURCE_DIR;

struct Shipped {
  const char* task;
  std::vector<std::string> prompts;  // Those of tools/check_embedded_model.py.
};

void PrintTo(const Shipped& shipped, std::ostream* out) { *out << shipped.task; }

model::NamedTensors TensorsOf(const std::string& path) {
  const auto file = io::ReadSafetensors(path);
  EXPECT_TRUE(file.ok()) << file.status();
  model::NamedTensors tensors;
  if (!file.ok()) return tensors;
  for (const auto& [name, bytes] : file->tensors) tensors[name] = *io::ToTorch(bytes);
  return tensors;
}

class EmbeddedModelTest : public testing::TestWithParam<Shipped> {
 protected:
  std::vector<std::string> HeldOut() const {
    const auto lines = ReadFile(kSource + "/configs/prompts/" + GetParam().task + "_eval.txt");
    EXPECT_TRUE(lines.ok()) << lines.status();
    return absl::StrSplit(lines.value(), '\n', absl::SkipWhitespace());
  }
  std::unique_ptr<tasks::TaskTensors> SyntheticTask() const {
    return tasks::TensorsOf(**tasks::TaskNamed(GetParam().task), HeldOut()).value();
  }

  const std::string directory_ = kSource + "/models/" + GetParam().task;
  const model::NamedTensors golden_ =
      TensorsOf(kSource + "/tests/golden/models/" + GetParam().task + "_velocity.safetensors");
  const model::NamedTensors transformer_ =
      TensorsOf(directory_ + "/transformer/diffusion_pytorch_model.safetensors");
  const model::NamedTensors text_ = TensorsOf(directory_ + "/text_encoder/model.safetensors");
  const at::NoGradGuard no_grad_;
};

void ExpectClose(const at::Tensor& ours, const at::Tensor& golden) {
  ASSERT_EQ(ours.sizes(), golden.sizes());
  EXPECT_LE((ours - golden).abs().max().item<double>(),
            1e-5 * std::max(1.0, golden.abs().max().item<double>()));
}

TEST_P(EmbeddedModelTest, IdsEmbeddingsAndVelocitiesAreThoseOfDiffusers) {
  const at::Tensor ids = SyntheticTask()->TokenIds(GetParam().prompts).value();
  EXPECT_TRUE(at::equal(ids, golden_.at("ids")));

  const auto text_config = ReadFile(directory_ + "/text_encoder/config.json");
  const auto encoder =
      model::MakeClipTextEncoder(model::ParseClipTextConfig(text_config.value()).value(), text_);
  ASSERT_TRUE(encoder.ok()) << encoder.status();
  const model::ClipTextOutput encoded = (*encoder)->Encode(ids);
  ExpectClose(encoded.penultimate, golden_.at("tokens"));
  ExpectClose(encoded.pooled, golden_.at("pooled"));

  const auto config = ReadFile(directory_ + "/transformer/config.json");
  const auto transformer =
      model::MakeSd3Transformer(model::ParseSd3Config(config.value()).value(), transformer_);
  ASSERT_TRUE(transformer.ok()) << transformer.status();
  ExpectClose((*transformer)
                  ->Velocity(golden_.at("x"), golden_.at("sigma"),
                             {{model::kPromptTokens, golden_.at("tokens")},
                              {model::kPooledPrompt, golden_.at("pooled")}}),
              golden_.at("velocity"));
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
TEST_P(EmbeddedModelTest, ShippedModelPassesItsOwnGate) {
  const auto report = tasks::EvaluatePretrained(
      *SyntheticTask(), transformer_, text_, HeldOut(), /*per_prompt=*/8,
      flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, /*shift=*/1.0), /*seed=*/1);
  ASSERT_TRUE(report.ok()) << report.status();
  const absl::Status fit = SyntheticTask()->CheckBaseModel(*report);
  EXPECT_TRUE(fit.ok()) << fit;
  if (std::string(GetParam().task) == "digits") {
    EXPECT_GT(tasks::ValueOf(*report, "minority_row_share"), 0.3);
  }
  if (std::string(GetParam().task) == "plates") {
    EXPECT_GT(tasks::ValueOf(*report, "minority_row_share"), 0.2);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, EmbeddedModelTest,
    testing::Values(Shipped{"digits", {"text 000", "text 009", "text 473", "text 820", "text 999"}},
                    Shipped{"plates",
                            {"text \"000\"", "text \"009\"", "text \"473\"", "text \"820\"",
                             "text \"999\""}},
                    Shipped{"compose",
                            {"red square left of blue disc", "green triangle above yellow cross",
                             "blue cross right of blue disc", "yellow disc below red triangle",
                             "green square left of green disc"}}),
    [](const auto& info) { return std::string(info.param.task); });

}  // namespace
}  // namespace oxbow
