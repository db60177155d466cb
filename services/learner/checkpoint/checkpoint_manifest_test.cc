// SPDX-License-Identifier: Apache-2.0
// A manifest comes back as it was written, or is refused: never believed in part, and never the
// end of the process.
#include "services/learner/checkpoint/checkpoint_manifest.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace oxbow::learner {
namespace {

CheckpointManifest Example() {
  return {
      .state = {.committed_steps = 25,
                .policy_version = 50,
                .epoch = 3,
                .run_uid = "digits-0123456789abcdef",
                .prompts = {.pass = 1, .taken = 7},
                .config_sha256 = "c0ffee",
                .buffer_checkpoint = "step_000025",
                .wall_seconds = 1.5,
                .reuse = {.need = 0.375, .success_rate = 0.125, .earlier = {0.1, 0.5}},
                .known = {{{PromptId(~uint64_t{0}), {0.1, 7.9, LearnerStep(23)}},
                           {PromptId(5), {1e-300, 1.0 / 3, LearnerStep(2)}}},
                          {{LearnerStep(24), PromptId(5), 2.5, 5.5}}},
                .progress = rl::PromptProgress({{PromptId(~uint64_t{0}), {0, 5, true}},
                                                {PromptId(5), {0, 0, true}},
                                                {PromptId(6), {3, 3, false}},
                                                {PromptId(7), {0, 5, true}}}),
                .best_reward = 0.25,
                .prompts_sha256 = {{"prompts.train", "ab"}, {"prompts.eval", "cd"}},
                .model_sha256 = {{"transformer", "12"}},
                .reward_identities = {{"digits_ocr", "digits_ocr/1"}},
                .evaluated = {{"eval/reward_mean", 0.9375}},
                .owed_evaluations = {24, 25}},
      .files = {{"weights.safetensors", {.sha256 = std::string(64, 'a'), .bytes = 5'000'000'000}},
                {"optimizer.safetensors", {.sha256 = std::string(64, 'b'), .bytes = 8}}}};
}

nlohmann::json WithoutHash() {
  nlohmann::json object = nlohmann::json::parse(ManifestText(Example()));
  object.erase("sha256");
  return object;
}

// Promise: Chosen prompts follow from the seed.
// Promise: A run keeps its rewards.
TEST(CheckpointManifestTest, ComesBackAsItWasWritten) {
  const auto read = ParseManifest(ManifestText(Example()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ManifestText(*read), ManifestText(Example()));
  EXPECT_EQ(read->state.prompts, (PromptPosition{1, 7}));
  EXPECT_EQ(read->state.run_uid, Example().state.run_uid);
  EXPECT_EQ(read->state.best_reward, 0.25);
  EXPECT_EQ(read->state.reuse, Example().state.reuse);
  EXPECT_EQ(read->state.known, Example().state.known) << "bit for bit";
  EXPECT_EQ(read->state.progress, Example().state.progress);
  EXPECT_EQ(read->state.prompts_sha256, Example().state.prompts_sha256);
  EXPECT_EQ(read->state.model_sha256, Example().state.model_sha256);
  EXPECT_EQ(read->state.reward_identities, Example().state.reward_identities);
  EXPECT_EQ(read->state.evaluated, Example().state.evaluated);
  EXPECT_EQ(read->state.owed_evaluations, Example().state.owed_evaluations);
  EXPECT_EQ(read->files, Example().files);
}

// Promise: Any process draws an evaluation with the same bytes.
TEST(CheckpointManifestTest, OwedEvaluationsAreOfStepsThatItHasInOrder) {
  for (const nlohmann::json& wrong :
       {nlohmann::json(3), nlohmann::json({26}), nlohmann::json({4, 4}), nlohmann::json({5, 4}),
        nlohmann::json({-1}), nlohmann::json({"4"})}) {
    nlohmann::json object = WithoutHash();
    object["state"]["owed_evaluations"] = wrong;
    EXPECT_EQ(ParseManifest(object.dump()).status().code(), absl::StatusCode::kDataLoss) << wrong;
  }
}

TEST(CheckpointManifestTest, LevelsOfPromptsAreLevelsAndEachPromptHasOne) {
  for (const nlohmann::json& wrong :
       {nlohmann::json(3), nlohmann::json({{"6", "1"}}), nlohmann::json({{"0_6", "1"}}),
        nlohmann::json({{"-1", "1"}}), nlohmann::json({{"0_1_2", "1"}}),
        nlohmann::json({{"0", ""}}), nlohmann::json({{"0", "1"}, {"1", "1"}}),
        nlohmann::json({{"0", 1}})}) {
    nlohmann::json object = WithoutHash();
    object["state"]["prompt_levels"] = wrong;
    EXPECT_EQ(ParseManifest(object.dump()).status().code(), absl::StatusCode::kDataLoss) << wrong;
  }
}

TEST(CheckpointManifestTest, AHashOfZerosAtAFileIsNotTakenForItsOwn) {
  CheckpointManifest manifest = Example();
  manifest.files["adapter.safetensors"] = {.sha256 = std::string(64, '0'), .bytes = 8};
  const auto read = ParseManifest(ManifestText(manifest));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->files, manifest.files);
}

// Promise: Resume continues from the checkpoint.
TEST(CheckpointManifestTest, EveryChangedByteIsRefused) {
  const std::string text = ManifestText(Example());
  for (size_t i = 0; i + 1 < text.size(); ++i) {  // The newline at the end says nothing.
    std::string changed = text;
    changed[i] = changed[i] == '7' ? '8' : '7';
    const auto read = ParseManifest(changed);
    // A hash whose key is gone is that of an older version; all it covers is still unchanged.
    if (read.ok()) {
      EXPECT_EQ(ManifestText(*read), text) << "byte " << i;
    } else {
      EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << read.status();
    }
  }
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_FALSE(ParseManifest(text.substr(0, size)).ok()) << size;
  }
}

TEST(CheckpointManifestTest, OneOfAnOlderVersionIsReadAsItIs) {
  nlohmann::json older = WithoutHash();
  older["state"].erase("prompts_sha256");
  older["state"].erase("best_reward");
  older["state"].erase("replay_need");
  older["state"].erase("replay_success_rate");
  older["state"].erase("replay_need_before");
  older["state"].erase("reward_identities");
  const auto read = ParseManifest(older.dump(2));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->state.committed_steps, 25u);
  EXPECT_EQ(read->state.reuse, replay::ReuseState()) << "a run that knows nothing yet";
  EXPECT_TRUE(read->state.prompts_sha256.empty());
  EXPECT_TRUE(read->state.reward_identities.empty());
  EXPECT_EQ(read->files, Example().files);
}

// Promise: Resume continues from the checkpoint.
TEST(CheckpointManifestTest, AValueOfAnotherTypeIsDataLoss) {
  const nlohmann::json whole = WithoutHash();
  const std::vector<nlohmann::json> others = {nullptr, -1, 1.5, "text", true, {1, 2}, {{"a", 1}}};
  int refused = 0;
  const auto put = [&](const nlohmann::json::json_pointer& place) {
    for (const nlohmann::json& other : others) {
      nlohmann::json changed = whole;
      changed[place] = other;
      const auto read = ParseManifest(changed.dump());  // No exception, whatever it is.
      if (read.ok()) continue;
      EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << read.status();
      ++refused;
    }
  };
  for (const auto& [key, value] : whole["state"].items()) {
    put(nlohmann::json::json_pointer("/state/" + key));
  }
  for (const char* place :
       {"/state", "/files", "/state/prompts_sha256/prompts.train", "/files/weights.safetensors",
        "/files/weights.safetensors/bytes", "/files/weights.safetensors/sha256"}) {
    put(nlohmann::json::json_pointer(place));
  }
  EXPECT_GT(refused, 70);
  for (const char* text : {"", "[]", "7", "{}", R"({"state": {}})", R"({"files": {}})"}) {
    EXPECT_EQ(ParseManifest(text).status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

TEST(CheckpointManifestTest, AFileOutsideTheDirectoryIsRefused) {
  for (const char* name : {"../weights", "/etc/passwd", "a/b", "", "."}) {
    nlohmann::json changed = WithoutHash();
    changed["files"][name] = {{"sha256", "aa"}, {"bytes", 1}};
    EXPECT_FALSE(ParseManifest(changed.dump()).ok()) << name;
  }
}

// Copies are kept in a directory of this name.
TEST(CheckpointManifestTest, AUidThatLeadsElsewhereIsRefused) {
  for (const char* wrong : {"..", ".exp-1", "a/b", "/"}) {
    nlohmann::json object = WithoutHash();
    object["state"]["run_uid"] = wrong;
    EXPECT_EQ(ParseManifest(object.dump()).status().code(), absl::StatusCode::kDataLoss) << wrong;
  }
}

TEST(CheckpointManifestTest, ANumberThatIsNotFiniteIsLeftOut) {
  CheckpointManifest manifest = Example();
  manifest.state.best_reward = -std::numeric_limits<double>::infinity();
  const auto read = ParseManifest(ManifestText(manifest));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->state.best_reward, 0);
}

}  // namespace
}  // namespace oxbow::learner
