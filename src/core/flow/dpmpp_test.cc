// SPDX-License-Identifier: Apache-2.0
#include "core/flow/dpmpp.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/flow/dynamics.h"
#include "tests/golden/golden.h"
#include "tests/testing/solve_dpmpp.h"

namespace oxbow::flow {
namespace {

using ::oxbow::testing::FlowGolden;
using ::oxbow::testing::Golden;
using ::oxbow::testing::kGoldenTolerance;

at::Tensor Row(const nlohmann::json& values) {
  return at::tensor(values.get<std::vector<double>>(), at::kDouble).unsqueeze(0);
}

double Worst(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(DpmppTest, GoldenSecondOrderSteps) {
  for (const auto& r : Golden()["dpmpp"]) {
    const auto kind = r["kind"] == "midpoint" ? DpmppKind::kMidpoint : DpmppKind::kHeun;
    const auto next = DpmppSecond(kind, Row(r["x"]), Row(r["m0"]), Row(r["m1"]), r["s_prev"],
                                  r["s"], r["s_next"]);
    EXPECT_LT(Worst(next, Row(r["x_next"])), kGoldenTolerance) << r["kind"];
  }
}

TEST(DpmppTest, FirstOrderIsTheEulerStep) {
  for (const auto& r : Golden()["steps"]) {
    const double s = r["s"];
    const at::Tensor x = Row(r["x"]);
    const at::Tensor euler = DpmppFirst(x, x - Row(r["v"]) * s, s, r["s_next"]);
    EXPECT_LT(Worst(euler, Row(r["ode"])), kGoldenTolerance);
  }
}

// Whole paths from pure noise to the data under v = slope x + offset sigma: tests the order control
// at both ends.
TEST(DpmppTest, GoldenPaths) {
  for (const auto& r : FlowGolden()["dpmpp_paths"]) {
    const double slope = r["slope"];
    const double offset = r["offset"];
    const auto velocity = [&](const at::Tensor& x, const at::Tensor& sigma) {
      return x * slope + sigma.unsqueeze(1) * offset;
    };
    const auto kind = r["kind"] == "midpoint" ? DpmppKind::kMidpoint : DpmppKind::kHeun;
    const at::Tensor end = SolveDpmpp(kind, r["sigmas"], Row(r["x"]), velocity);
    EXPECT_LT(Worst(end, Row(r["x_end"])), kGoldenTolerance) << r["kind"] << r["sigmas"].size();
  }
}

// Data N(1, 1/4): v is linear in x and the flow maps quantiles to quantiles, so x_0 is known.
double EndError(DpmppKind kind, int steps) {
  const auto velocity = [](const at::Tensor& x, const at::Tensor& sigma) {
    const at::Tensor t = sigma.unsqueeze(1);
    const at::Tensor a = 1 - t;
    const at::Tensor centred = x - a;
    return centred * ((t - a * .25) / (a * a * .25 + t * t)) - 1;
  };
  std::vector<double> sigmas;
  for (int i = 0; i <= steps; ++i) sigmas.push_back(0.95 + (0.05 - 0.95) * i / steps);
  const auto quantile = [](double t, double z) {
    return (1 - t) + z * std::sqrt((1 - t) * (1 - t) * .25 + t * t);
  };
  const at::Tensor start = at::full({1, 1}, quantile(0.95, 1.3), at::kDouble);
  return std::abs(SolveDpmpp(kind, sigmas, start, velocity).item<double>() - quantile(0.05, 1.3));
}

TEST(DpmppTest, SecondOrderErrorFallsFasterThanFirst) {
  EXPECT_NEAR(EndError(DpmppKind::kFirst, 80) / EndError(DpmppKind::kFirst, 160), 2, 0.2);
  for (const auto kind : {DpmppKind::kMidpoint, DpmppKind::kHeun}) {
    EXPECT_GT(EndError(kind, 80) / EndError(kind, 160), 3.2);
    EXPECT_LT(EndError(kind, 80), 0.2 * EndError(DpmppKind::kFirst, 80));
  }
}

TEST(DpmppTest, InfiniteLambdasUseTheTwoPointForm) {
  const at::Tensor x = at::full({1, 2}, 0.5, at::kDouble);
  const at::Tensor m0 = at::full({1, 2}, -0.25, at::kDouble);
  const at::Tensor m1 = at::full({1, 2}, 7.0, at::kDouble);
  EXPECT_TRUE(at::equal(DpmppSecond(DpmppKind::kHeun, x, m0, m1, 0.2, 0.1, 0), m0));
  EXPECT_TRUE(at::equal(DpmppSecond(DpmppKind::kHeun, x, m0, m1, 1, 0.8, 0.4),
                        DpmppFirst(x, m0, 0.8, 0.4)));
}

}  // namespace
}  // namespace oxbow::flow
