// Our adapters against PEFT's: which modules the targets select, velocities, and gradients of a
// loss.
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "core/model/lora.h"
#include "core/model/parameters.h"
#include "core/model/sd3.h"
#include "gtest/gtest.h"
#include "tests/golden/model_golden.h"

namespace oxbow::model {
namespace {

class LoraGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  at::Tensor Velocity(const VelocityModel& model) const {
    return model.Velocity(golden_.in.at("x"), golden_.in.at("sigma"),
                          {golden_.in.at("tokens"), golden_.in.at("pooled")});
  }

  const Golden golden_{GetParam()};
  const Sd3Params params_ = ParseSd3Config(golden_.config).value();
  const LoraSpec spec_{
      .rank = std::stol(golden_.metadata.at("rank")),
      .alpha = std::stod(golden_.metadata.at("alpha")),
      .targets = nlohmann::json::parse(golden_.metadata.at("targets")),
  };
};

TEST_P(LoraGoldenTest, TargetsSelectTheModulesThatPeftSelects) {
  const auto fresh = InitialLora(Sd3Linears(params_), spec_, /*seed=*/1);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  std::vector<std::string> ours, theirs;
  for (const auto& [name, tensor] : *fresh) ours.push_back(name);
  for (const auto& [name, tensor] : golden_.adapter) theirs.push_back(name);
  EXPECT_EQ(ours, theirs);
}

TEST_P(LoraGoldenTest, VelocitiesAndGradientsAreThoseOfPeft) {
  ParameterSet matrices(golden_.adapter, /*trainable=*/true);
  const LoraAdapter adapter{.tensors = matrices.tensors(),
                            .scale = spec_.alpha / static_cast<double>(spec_.rank)};
  const auto adapted = MakeSd3Transformer(params_, golden_.weights, &adapter);
  ASSERT_TRUE(adapted.ok()) << adapted.status();
  const at::Tensor v = Velocity(**adapted);
  ExpectClose(v, golden_.out.at("v"));
  ((v * golden_.in.at("direction")).mean().exp() + v.square().mean() * 0.5).backward();
  ASSERT_EQ(golden_.gradients.size(), golden_.adapter.size());
  ExpectGradients(matrices, golden_.gradients, /*floor=*/0);

  const auto base = MakeSd3Transformer(params_, golden_.weights);
  ASSERT_TRUE(base.ok()) << base.status();
  ExpectClose(Velocity(**base), golden_.out.at("base"));
}

INSTANTIATE_TEST_SUITE_P(Configs, LoraGoldenTest, testing::ValuesIn(GoldenNames("lora")),
                         [](const auto& info) { return info.param; });

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LoraGoldenTest);

}  // namespace
}  // namespace oxbow::model
