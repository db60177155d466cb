// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "run/model_facts.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DistilledModelTest : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    const auto path = scratch_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void Pipeline(const std::string& name, const std::string& more = "") {
    Write("model_index.json", R"({"_class_name": ")" + name + "\"" + more + "}");
  }
  std::vector<std::string> Keys(double eta, double guidance,
                                v1::DynamicsKind dynamics = v1::DYNAMICS_KIND_FLOW_SDE) const {
    v1::SamplingConfig sampling;
    sampling.set_eta(eta);
    sampling.set_guidance(guidance);
    sampling.set_dynamics(dynamics);
    std::vector<std::string> keys;
    for (const config::Problem& problem : CheckDistilled(scratch_.path(), sampling, guidance)) {
      EXPECT_EQ(problem.severity, config::Severity::kWarning);
      keys.push_back(problem.key);
    }
    return keys;
  }
  bool Refuses(double guidance) const {
    return !CheckTakesGuidance(scratch_.path(), guidance).ok();
  }

  testing::ScopedDirectory scratch_;
};

// Promise: Distilled models are known. schnell, Z-Image-Turbo and a distilled klein are told by
// their directory. Noise and guidance that destroy them are warned of; guidance that klein's
// pipeline ignores is refused.
TEST_F(DistilledModelTest, SchnellIsWarnedOfNoiseAndOfGuidance) {
  Pipeline("FluxPipeline");
  Write("transformer/config.json", R"({"guidance_embeds": false})");
  EXPECT_THAT(Keys(0.9, 4), ElementsAre("sampling.eta", "sampling.guidance"));
  EXPECT_THAT(Keys(0.3, 1), IsEmpty());
  EXPECT_THAT(Keys(0.9, 1, v1::DYNAMICS_KIND_ODE), IsEmpty()) << "no noise is added";
  EXPECT_FALSE(Refuses(4));
  Write("transformer/config.json", R"({"guidance_embeds": true})");
  EXPECT_THAT(Keys(0.9, 4), IsEmpty()) << "FLUX.1-dev";
}

// Promise: Distilled models are known.
TEST_F(DistilledModelTest, ZImageTurboIsKnownByItsShift) {
  Pipeline("ZImagePipeline");
  Write("scheduler/scheduler_config.json", R"({"shift": 3.0})");
  EXPECT_THAT(Keys(0.9, 4), ElementsAre("sampling.eta", "sampling.guidance"));
  v1::SamplingConfig half;  // Its pipeline's scale is one below the usual one.
  half.set_guidance(0.5);
  const auto problems = CheckDistilled(scratch_.path(), half, 1.5);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].message, HasSubstr("take 0, got 0.5"));
  Write("scheduler/scheduler_config.json", R"({"shift": 6.0})");
  EXPECT_THAT(Keys(0.9, 4), IsEmpty()) << "Z-Image";
}

// As Flux2KleinPipeline does it: no second pass, whatever the scale.
// Promise: Distilled models are known.
TEST_F(DistilledModelTest, GuidanceOfADistilledKleinIsRefused) {
  Pipeline("Flux2KleinPipeline", R"(, "is_distilled": true)");
  EXPECT_THAT(Keys(0.9, 4), ElementsAre("sampling.eta")) << "guidance is an error of its own";
  EXPECT_TRUE(Refuses(4));
  EXPECT_FALSE(Refuses(1));
  EXPECT_THAT(std::string(CheckTakesGuidance(scratch_.path(), 4).message()),
              HasSubstr("model_index.json has is_distilled: true"));
  Pipeline("Flux2KleinPipeline", R"(, "is_distilled": false)");
  EXPECT_FALSE(Refuses(4));
  EXPECT_THAT(Keys(0.9, 4), IsEmpty());
  Pipeline("Flux2KleinPipeline");
  EXPECT_FALSE(Refuses(4)) << "false is diffusers' default";
}

TEST_F(DistilledModelTest, OtherDirectoriesSayNothing) {
  EXPECT_THAT(Keys(0.9, 4), IsEmpty()) << "no model";
  Pipeline("StableDiffusion3Pipeline");
  EXPECT_THAT(Keys(0.9, 4), IsEmpty());
  Write("model_index.json", "{");
  EXPECT_THAT(Keys(0.9, 4), IsEmpty());
}

}  // namespace
}  // namespace oxbow::run
