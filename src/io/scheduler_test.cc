// SPDX-License-Identifier: Apache-2.0
#include "io/scheduler.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/flow/schedule.h"

namespace oxbow::io {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(SchedulerTest, AShiftIsStaticOrFollowsTheImagesSize) {
  const auto shift = [](const std::string& json) {
    return SchedulerShift({.config_json = json}, /*image_tokens=*/1024);
  };
  EXPECT_EQ(*shift("{}"), 1);
  EXPECT_EQ(*shift(R"({"shift": 3.0})"), 3);
  EXPECT_NEAR(*shift(R"({"shift": 3.0, "use_dynamic_shifting": true})"), std::exp(0.63), 1e-12);
  EXPECT_NEAR(*shift(R"({"use_dynamic_shifting": true, "base_shift": 0.4, "max_shift": 1.3,
                         "base_image_seq_len": 128, "max_image_seq_len": 1152})"),
              std::exp(0.4 + 0.9 * 896 / 1024), 1e-12);
  EXPECT_EQ(shift(R"({"use_dynamic_shifting": true, "time_shift_type": "linear"})").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(shift(R"({"shift": 0})").status().code(), absl::StatusCode::kDataLoss);
}

absl::StatusOr<double> ShiftOfUnipc(const Json& config) {
  const DiffusersComponent scheduler{.class_name = "UniPCMultistepScheduler",
                                     .config_json = config.dump()};
  EXPECT_TRUE(IsUnipcScheduler(scheduler));
  return SchedulerShift(scheduler, /*image_tokens=*/1024);
}

// As diffusers writes the scheduler of Wan2.1 at 480 pixels.
Json WanScheduler() {
  return Json::parse(R"({
      "_class_name": "UniPCMultistepScheduler", "_diffusers_version": "0.33.0.dev0",
      "beta_end": 0.02, "beta_schedule": "linear", "beta_start": 0.0001, "disable_corrector": [],
      "dynamic_thresholding_ratio": 0.995, "final_sigmas_type": "zero", "flow_shift": 3.0,
      "lower_order_final": true, "num_train_timesteps": 1000, "predict_x0": true,
      "prediction_type": "flow_prediction", "rescale_betas_zero_snr": false,
      "sample_max_value": 1.0, "solver_order": 2, "solver_p": null, "solver_type": "bh2",
      "steps_offset": 0, "thresholding": false, "timestep_spacing": "linspace",
      "trained_betas": null, "use_beta_sigmas": false, "use_exponential_sigmas": false,
      "use_flow_sigmas": true, "use_karras_sigmas": false, "sigma_max": null, "sigma_min": null,
      "shift_terminal": null, "time_shift_type": "exponential", "use_dynamic_shifting": false})");
}

TEST(SchedulerTest, UnipcHasItsFlowShift) {
  EXPECT_EQ(*ShiftOfUnipc(WanScheduler()), 3);
  Json config = WanScheduler();
  config["flow_shift"] = 5;
  EXPECT_EQ(*ShiftOfUnipc(config), 5);
  config.erase("flow_shift");
  EXPECT_EQ(*ShiftOfUnipc(config), 1);
  config["shift"] = 3;
  EXPECT_THAT(std::string(ShiftOfUnipc(config).status().message()), HasSubstr("unknown key"));
  config.erase("shift");
  config["flow_shift"] = "3";
  EXPECT_EQ(ShiftOfUnipc(config).status().code(), absl::StatusCode::kDataLoss);
}

// Promise: No scheduler's key is passed over.
TEST(SchedulerTest, UnipcOfAnotherGridIsRefusedByItsKey) {
  const Json changes = {{"use_flow_sigmas", false},   {"prediction_type", "epsilon"},
                        {"num_train_timesteps", 100}, {"final_sigmas_type", "sigma_min"},
                        {"use_karras_sigmas", true},  {"use_exponential_sigmas", true},
                        {"use_beta_sigmas", true},    {"use_dynamic_shifting", true},
                        {"thresholding", true},       {"shift_terminal", 0.1},
                        {"stochastic_sampling", true}};
  for (const auto& [key, value] : changes.items()) {
    Json config = WanScheduler();
    config[key] = value;
    const absl::Status status = ShiftOfUnipc(config).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << key;
    EXPECT_THAT(std::string(status.message()), HasSubstr(key));
  }
  // Their defaults are those of other models.
  for (const char* key : {"use_flow_sigmas", "prediction_type"}) {
    Json config = WanScheduler();
    config.erase(key);
    EXPECT_THAT(std::string(ShiftOfUnipc(config).status().message()), HasSubstr(key));
  }
}

// FlowMatchEulerDiscreteScheduler with all of its defaults, as diffusers writes it.
Json EulerScheduler() {
  return Json::parse(R"({
      "_class_name": "FlowMatchEulerDiscreteScheduler", "_diffusers_version": "0.42.1",
      "_use_default_values": ["shift"], "base_image_seq_len": 256, "base_shift": 0.5,
      "invert_sigmas": false, "max_image_seq_len": 4096, "max_shift": 1.15,
      "num_train_timesteps": 1000, "shift": 3.0, "shift_terminal": null,
      "stochastic_sampling": false, "time_shift_type": "exponential", "use_beta_sigmas": false,
      "use_dynamic_shifting": false, "use_exponential_sigmas": false,
      "use_karras_sigmas": false})");
}

absl::Status StatusOfEuler(const Json& config, double shift) {
  return ReadPipelineSchedule(
             {{"transformer", {.class_name = "SD3Transformer2DModel"}},
              {"scheduler",
               {.class_name = "FlowMatchEulerDiscreteScheduler", .config_json = config.dump()}}},
             /*image_tokens=*/1024, /*steps=*/10, shift)
      .status();
}

// A shift of the run's own replaces the scheduler's, and no more.
// Promise: No scheduler's key is passed over. A key of either class that changes the grid or the
// step, and one that is not known, is refused by its name.
TEST(SchedulerTest, EulerOfAnotherGridOrStepIsRefusedByItsKey) {
  const Json changes = {{"use_karras_sigmas", true},
                        {"use_beta_sigmas", true},
                        {"use_exponential_sigmas", true},
                        {"stochastic_sampling", true},
                        {"invert_sigmas", true},
                        {"num_train_timesteps", 500},
                        {"of_2027", 1},
                        {"use_lu_lambdas", true}};
  for (const double shift : {0., 3.}) {
    ASSERT_TRUE(StatusOfEuler(EulerScheduler(), shift).ok());
    for (const auto& [key, value] : changes.items()) {
      Json config = EulerScheduler();
      config[key] = value;
      const absl::Status status = StatusOfEuler(config, shift);
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << key;
      EXPECT_THAT(std::string(status.message()), HasSubstr(key));
      config[key] = nullptr;
      EXPECT_TRUE(StatusOfEuler(config, shift).ok()) << key;
    }
  }
  Json linear = EulerScheduler();
  linear["time_shift_type"] = "linear";
  EXPECT_TRUE(StatusOfEuler(linear, 0).ok());  // Without a dynamic shift it means nothing.
  linear["use_dynamic_shifting"] = true;
  EXPECT_THAT(std::string(StatusOfEuler(linear, 0).message()), HasSubstr("time_shift_type"));
}

// diffusers keeps the keys of the scheduler that another one was made of.
TEST(SchedulerTest, KeysOfAnotherClassThatSayNothingHereAreNoHindrance) {
  Json euler = WanScheduler();
  euler.update(EulerScheduler());
  EXPECT_TRUE(StatusOfEuler(euler, 0).ok()) << StatusOfEuler(euler, 0);
  Json unipc = EulerScheduler();
  unipc.erase("shift");
  unipc.update(WanScheduler());
  EXPECT_EQ(*ShiftOfUnipc(unipc), 3);
}

Json GoldenFile(const std::string& name) {
  std::ifstream file(OXBOW_SOURCE_DIR "/tests/golden/" + name);
  return Json::parse(file);
}

DiffusersComponents PipelineWith(const std::string& transformer, const Json& scheduler,
                                 const std::string& scheduler_class = "") {
  return {{"transformer", {.class_name = transformer}},
          {"scheduler", {.class_name = scheduler_class, .config_json = scheduler.dump()}}};
}

// Goldens are of tools/make_scheduler_goldens.py: what a pipeline of diffusers samples along.
void ExpectLevels(const DiffusersComponents& components, int64_t tokens, const Json& golden) {
  const int steps = golden["steps"].get<int>();
  const auto own = ReadPipelineSchedule(components, tokens, steps);
  ASSERT_TRUE(own.ok()) << own.status();
  const std::vector<double> sigmas =
      flow::SigmaGrid(own->grid, steps, own->shift, own->shift_terminal);
  const auto expected = golden["sigmas"].get<std::vector<double>>();
  ASSERT_EQ(sigmas.size(), expected.size());
  for (size_t i = 0; i < sigmas.size(); ++i) {
    EXPECT_NEAR(sigmas[i], expected[i], 2e-7) << tokens << " tokens, level " << i;
  }
}

void ExpectNoiseLevels(const std::string& file_name, const std::string& transformer) {
  const Json golden = GoldenFile(file_name);
  const DiffusersComponents components = PipelineWith(transformer, golden["scheduler"]);
  ASSERT_GE(golden["cases"].size(), 4u);
  for (const Json& picture : golden["cases"]) {
    const int64_t tokens =
        picture["height"].get<int64_t>() / 16 * (picture["width"].get<int64_t>() / 16);
    ExpectLevels(components, tokens, picture);
  }
}

// Promise: Noise levels equal those of diffusers.
TEST(SchedulerTest, NoiseLevelsOfFluxAreThoseOfItsPipelineAtEverySize) {
  ExpectNoiseLevels("flux_sigmas.json", "FluxTransformer2DModel");
}

// Promise: Noise levels equal those of diffusers.
TEST(SchedulerTest, NoiseLevelsOfFlux2FollowTheStepsAsWell) {
  ExpectNoiseLevels("flux2_sigmas.json", "Flux2Transformer2DModel");
  const DiffusersComponents fixed = PipelineWith("Flux2Transformer2DModel", {{"shift", 3.0}});
  EXPECT_EQ(ReadPipelineSchedule(fixed, 1024, 28)->shift, 3);
}

TEST(SchedulerTest, EveryPipelineHasItsOwnGridAndItsLastLevel) {
  const Json golden = GoldenFile("pipeline_sigmas.json");
  std::set<std::string> pipelines;
  for (const Json& drawn : golden) {
    SCOPED_TRACE(drawn["pipeline"].get<std::string>() + " " + drawn["scheduler"].dump());
    pipelines.insert(drawn["pipeline"]);
    ExpectLevels(PipelineWith(drawn["transformer"], drawn["scheduler"], drawn["scheduler_class"]),
                 drawn["tokens"], drawn);
  }
  EXPECT_EQ(pipelines.size(), PipelineTable().size());
}

TEST(SchedulerTest, AShiftOfTheConfigTakesTheEndOfTheSchedulerAway) {
  const DiffusersComponents components = PipelineWith(
      "LTXVideoTransformer3DModel",
      {{"use_dynamic_shifting", true}, {"time_shift_type", "linear"}, {"shift_terminal", .1}});
  const auto given = ReadPipelineSchedule(components, 1024, 20, /*shift=*/2);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->shift, 2);
  EXPECT_EQ(given->shift_terminal, 0);
  EXPECT_EQ(given->grid, flow::ScheduleKind::kLinspace);
}

TEST(SchedulerTest, ALastLevelThatIsNoneIsBrokenData) {
  for (const Json& last : {Json(1.0), Json(-.1), Json("0.1")}) {
    const absl::Status status =
        ReadPipelineSchedule(PipelineWith("LTXVideoTransformer3DModel", {{"shift_terminal", last}}),
                             1024, 20)
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << last;
    EXPECT_THAT(std::string(status.message()), HasSubstr("shift_terminal"));
  }
}

}  // namespace
}  // namespace oxbow::io
