// SPDX-License-Identifier: Apache-2.0
// Guidance against its formula, row by row.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/model/velocity_model.h"
#include "gtest/gtest.h"
#include "tests/golden/golden.h"

namespace oxbow::model {
namespace {

// v = a x + sigma + sum of tokens + sum of pooled: every input shows in the result.
class LinearModel final : public VelocityModel {
 public:
  explicit LinearModel(at::Tensor a) : a_(std::move(a)) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    const at::Tensor prompt =
        conditioning.at(kPromptTokens).sum({1, 2}) + conditioning.at(kPooledPrompt).sum(1);
    return a_ * x + (sigma + prompt * x.mean({1, 2, 3})).view({-1, 1, 1, 1});
  }
  const at::Tensor a_;
};

Conditioning Random(int64_t rows, int64_t tokens) {
  return {{kPromptTokens, at::randn({rows, tokens, 3})}, {kPooledPrompt, at::randn({rows, 2})}};
}

Conditioning Zeros(int64_t rows, int64_t tokens) {
  return {{kPromptTokens, at::zeros({rows, tokens, 3})}, {kPooledPrompt, at::zeros({rows, 2})}};
}

TEST(GuidanceTest, FollowsTheFormulaWithBothGradients) {
  at::manual_seed(7);
  const at::Tensor a = at::full({1}, 0.5).requires_grad_(true);
  const Conditioning negative = Random(1, 4);
  const Conditioning prompts = Random(5, 4);
  const at::Tensor x = at::randn({5, 1, 2, 3}), sigma = at::rand({5});
  const auto guided = MakeGuided(std::make_unique<LinearModel>(a), 4.5, negative);
  const at::Tensor v = guided->Velocity(x, sigma, prompts);

  const LinearModel plain(a);
  const Conditioning nothing{{kPromptTokens, negative.at(kPromptTokens).expand({5, 4, 3})},
                             {kPooledPrompt, negative.at(kPooledPrompt).expand({5, 2})}};
  const at::Tensor with = plain.Velocity(x, sigma, prompts);
  const at::Tensor without = plain.Velocity(x, sigma, nothing);
  EXPECT_TRUE(at::allclose(v, 4.5 * with - 3.5 * without, 1e-5, 1e-6));
  v.square().sum().backward();
  const at::Tensor gradient = a.grad().clone();
  a.mutable_grad().zero_();
  (4.5 * with - 3.5 * without).square().sum().backward();
  EXPECT_TRUE(at::allclose(gradient, a.grad(), 1e-4));
}

// Counts the rows of its largest batch.
class CountedModel final : public VelocityModel {
 public:
  CountedModel(at::Tensor a, int64_t* most) : model_(std::move(a)), most_(most) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    *most_ = std::max(*most_, x.size(0));
    return model_.Velocity(x, sigma, conditioning);
  }
  const LinearModel model_;
  int64_t* const most_;
};

TEST(BoundedTest, NoForwardPassHasMoreRowsAndTheResultIsTheSame) {
  at::manual_seed(9);
  const at::Tensor a = at::full({1}, 0.5);
  const Conditioning prompts = Random(7, 4);
  const Conditioning negative = Random(1, 4);
  const at::Tensor x = at::randn({7, 1, 2, 3}), sigma = at::rand({7});
  const at::Tensor want =
      MakeGuided(std::make_unique<LinearModel>(a), 3, negative)->Velocity(x, sigma, prompts);
  for (const int64_t rows_max : {1, 4, 14, 15}) {
    int64_t most = 0;
    const auto guided =
        MakeGuided(MakeBounded(std::make_unique<CountedModel>(a, &most), rows_max), 3, negative);
    {
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(at::equal(guided->Velocity(x, sigma, prompts), want));
      EXPECT_EQ(most, std::min<int64_t>(rows_max, 14)) << "two rows for each of seven";
      EXPECT_EQ(guided->rows().forward, 14);
    }
    guided->Velocity(x, sigma, prompts);
    EXPECT_EQ(most, 14) << "a gradient goes through the whole batch";
  }
}

// Promise: Guidance is the pipeline's own.
TEST(GuidanceTest, ATokenCanKeepTheNormThatItHasWithThePrompt) {
  at::manual_seed(8);
  const at::Tensor a = at::full({1}, 0.5);
  const Conditioning negative = Random(1, 4);
  const Conditioning prompts = Random(5, 4);
  const at::Tensor x = at::randn({5, 3, 4, 6}), sigma = at::rand({5});
  const auto Guide = [&](int64_t patch) {
    return MakeGuided(std::make_unique<LinearModel>(a), 4.5, negative, patch);
  };
  const at::Tensor plain = Guide(0)->Velocity(x, sigma, prompts);
  const at::Tensor kept = Guide(2)->Velocity(x, sigma, prompts);
  const at::Tensor with = LinearModel(a).Velocity(x, sigma, prompts);
  const auto token = [](const at::Tensor& v, int64_t row, int64_t y, int64_t column) {
    return v[row].narrow(1, 2 * y, 2).narrow(2, 2 * column, 2).reshape({-1});
  };
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t place = 0; place < 6; ++place) {
      const at::Tensor expected = token(with, row, place / 3, place % 3);
      const at::Tensor guided = token(plain, row, place / 3, place % 3);
      EXPECT_TRUE(at::allclose(token(kept, row, place / 3, place % 3),
                               guided * (expected.norm() / guided.norm()), 1e-5, 1e-6))
          << row << ", " << place;
    }
    const at::Tensor alone = Guide(2)->Velocity(x.narrow(0, row, 1), sigma.narrow(0, row, 1),
                                                NarrowRows(prompts, row, 1));
    EXPECT_TRUE(at::equal(alone, kept.narrow(0, row, 1))) << "a row's bits";
  }
}

// Gives back the noise level that it was shown.
class ShownLevel final : public VelocityModel {
  at::Tensor Predict(const at::Tensor&, const at::Tensor& sigma,
                     const Conditioning&) const override {
    return sigma;
  }
};

// Timesteps of diffusers' scheduler for its network, from the levels as they are stored: float32.
// Promise: Noise levels equal those of diffusers.
TEST(WholeTimestepsTest, AreThoseOfTheGoldenGrids) {
  const auto model = MakeWholeTimesteps(std::make_unique<ShownLevel>());
  for (const auto& grid : testing::UnipcGolden()["grids"]) {
    auto sigmas = grid["sigmas"].get<std::vector<double>>();
    sigmas.pop_back();
    const at::Tensor sigma = at::tensor(sigmas, at::kFloat);
    const at::Tensor whole = at::tensor(grid["timesteps"].get<std::vector<double>>(), at::kDouble);
    EXPECT_TRUE(at::equal(model->Velocity(sigma, sigma, {}), (whole / 1000).to(at::kFloat)))
        << grid["steps"] << " steps, shift " << grid["shift"];
  }
}

TEST(WholeTimestepsTest, AWholeTimestepStaysAndCostsNothingMore) {
  const auto model = MakeWholeTimesteps(std::make_unique<ShownLevel>());
  const at::Tensor sigma = at::arange(0, 1001, at::kFloat) / 1000;
  EXPECT_TRUE(at::equal(model->Velocity(sigma, sigma, {}), sigma));
  EXPECT_EQ(model->rows().backward, 1001);
}

TEST(GuidanceTest, CostsTwoRowsEach) {
  const auto guided = MakeGuided(std::make_unique<LinearModel>(at::ones({1})), 2, Zeros(1, 4));
  guided->Velocity(at::zeros({5, 1, 2, 3}), at::zeros({5}), Zeros(1, 4));
  EXPECT_EQ(guided->rows().backward, 10);
}

TEST(GuidanceDeathTest, TokensOfAnotherNumberEndTheProcess) {
  const auto guided = MakeGuided(std::make_unique<LinearModel>(at::ones({1})), 2, Zeros(1, 4));
  EXPECT_DEATH(guided->Velocity(at::zeros({5, 1, 2, 3}), at::zeros({5}), Zeros(5, 7)), "7 != 4");
}

}  // namespace
}  // namespace oxbow::model
