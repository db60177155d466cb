// SPDX-License-Identifier: Apache-2.0
// The scale of guidance that a network is given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "core/model/velocity_model.h"
#include "run/model_facts.h"

namespace oxbow::run {
namespace {

using ::testing::HasSubstr;

// A network that takes the scale, and its own; below 0: one that takes none.
class Network final : public model::Architecture {
 public:
  explicit Network(double own) : own_(own) {}
  const std::string& class_name() const override { return class_name_; }
  const model::LatentGeometry& latent() const override { return latent_; }
  const std::vector<model::ConditioningPart>& conditioning() const override { return parts_; }
  model::Shapes shapes() const override { return {}; }
  model::LinearModules linears() const override { return {}; }
  bool takes_embedded_guidance() const override { return own_ >= 0; }
  double default_guidance() const override { return std::max(0.0, own_); }
  const std::set<std::string>& buffers() const override { return buffers_; }
  uint64_t ActivationBytes(const model::Execution&, const model::ForwardSize&) const override {
    return 0;
  }
  absl::StatusOr<std::unique_ptr<model::VelocityModel>> Make(
      const model::NamedTensors&, const model::LoraAdapter*,
      const model::Execution&) const override {
    return absl::UnimplementedError("no network");
  }

 private:
  const double own_;
  const std::string class_name_ = "Network";
  const model::LatentGeometry latent_;
  const std::vector<model::ConditioningPart> parts_;
  const std::set<std::string> buffers_;
};

absl::StatusOr<double> Resolved(double own, double set) {
  v1::SamplingConfig config;
  config.set_embedded_guidance(set);
  return EmbeddedGuidance(Network(own), config);
}

// Promise: Guidance that is an input is one scale everywhere.
TEST(EmbeddedGuidanceTest, IsTheRunsOrElseTheNetworksOwn) {
  EXPECT_EQ(*Resolved(3.5, 0), 3.5);
  EXPECT_EQ(*Resolved(3.5, 1), 1);
  EXPECT_EQ(*Resolved(3.5, *Resolved(3.5, 0)), 3.5);
  EXPECT_EQ(*Resolved(0, 2), 2);
  EXPECT_EQ(*Resolved(-1, 0), 0);
}

// Promise: Guidance that is an input is one scale everywhere.
TEST(EmbeddedGuidanceTest, RefusalsNameTheKey) {
  for (const auto& [own, set, why] :
       {std::tuple(-1.0, 3.5, "must be 0: this Network takes no scale of guidance"),
        {0.0, 0.0, "must be set: the graph of this Network names no scale"}}) {
    const absl::Status refused = Resolved(own, set).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("sampling.embedded_guidance"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(why));
  }
}

}  // namespace
}  // namespace oxbow::run
