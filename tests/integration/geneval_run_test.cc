// SPDX-License-Identifier: Apache-2.0
// GenEval with random weights in a training run, and as an evaluation set: the parts work together.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/graph_files.h"
#include "tests/integration/drawn_parts.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::SizeIs;

const std::string kSource = OXBOW_SOURCE_DIR;
const std::string kClip = kSource + "/tests/golden/scorers/clip";

// Prompts of no task, with metadata of things that the random detector sees in the pictures: some
// boats, some ovens.
std::string Prompts() {
  std::string lines;
  const char* const texts[] = {"number 473", "number 820", "number 009", "number 999"};
  for (int i = 0; i < 4; ++i) {
    const nlohmann::json demand = {{"class", i % 2 == 0 ? "boat" : "oven"}, {"count", 7}};
    lines += nlohmann::json{{"prompt", texts[i]},
                            {"tag", i % 2 == 0 ? "single_object" : "two_object"},
                            {"include", {demand}}}
                 .dump() +
             "\n";
  }
  return lines;
}

// A decoder whose red is the latent, green its negative and blue its half, all over its RMS: of two
// channels that hold x and -x, silu(a) - silu(-a) = a.
void FillInColour(const std::string& name, size_t, std::vector<float>& values) {
  if (name == "decoder.conv_norm_out.weight") values = {1, 1};
  if (name == "decoder.conv_in.weight") {
    values[4] = 1;  // The centre of a 3 x 3 kernel.
    values[13] = -1;
  }
  if (name == "decoder.conv_out.weight") {
    const std::vector<float> shares = {1, -1, 0.5F};
    for (size_t i = 0; i < shares.size(); ++i) {
      values[18 * i + 4] = shares[i];
      values[18 * i + 13] = -shares[i];
    }
  }
}

// The embedded model of digits in colour, square as the detector's graph wants its pictures.
void MakeModel(const std::filesystem::path& model) {
  std::filesystem::copy(kSource + "/models/digits", model,
                        std::filesystem::copy_options::recursive);
  AddAutoencoder(model, kSource + "/tests/golden/graphs/kl_colour", FillInColour);
  const std::filesystem::path part = model / "transformer", packed = part / "graph.json.gz";
  auto config = nlohmann::json::parse(*ReadFile(part / "config.json"));
  auto graph = nlohmann::json::parse(*io::ReadGraphFile(packed));
  config["sample_size"] = graph["config"]["sample_size"] = graph["latent"]["side"] = 16;
  std::ofstream(part / "config.json") << config.dump();
  std::ofstream(part / "graph.json") << graph.dump();
  std::filesystem::remove(packed);
}

class GenevalRunTest : public ::testing::Test {
 protected:
  GenevalRunTest() {
    MakeModel(model_);
    prompts_ = Path("prompts.jsonl");
    std::ofstream(prompts_) << Prompts();
    const std::string golden = kSource + "/tests/golden/scorers/geneval/3/";
    std::filesystem::create_directories(Path("detector"));
    for (const char* const file : {"config.json", "graph.json.gz"}) {
      std::filesystem::copy_file(golden + file, Path("detector/") + file);
    }
    const Outcome converted = RunOxbow(
        {"convert-weights", golden + "checkpoint.pth", Path("detector/model.safetensors")});
    EXPECT_EQ(converted.exit_code, 0) << converted.message;
    EXPECT_THAT(converted.output, HasSubstr("became those of transformers"));
  }
  std::string Path(const std::string& name) { return (scratch_.path() / name).string(); }

  Outcome Eval(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"eval", "--set", "geneval", "--prompts", prompts_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunOxbow(arguments);
  }
  std::vector<std::string> Keys() {
    return {"--key", "geneval.model=" + Path("detector"), "--key", "geneval.head=" + kClip};
  }
  // A run of three steps.
  TrainingRun Train(const std::vector<std::string>& services) {
    std::vector<std::string> overrides = {
        "model.path=" + model_,
        "sampling.height=16",
        "sampling.width=16",
        "prompts.train=" + prompts_,
        "prompts.eval=" + prompts_,
        "run.steps=3",
        "run.deterministic=true",
        "eval.every=3",
        "eval.images=8",
        "batch.groups=2",
        "batch.group_size=4",
        "reward.terms=[{name: geneval, weight: 1}]",
        "reward.observed=[]",
        "reward.scorers=[{name: geneval, model: " + Path("detector") + ", head: " + kClip + "}]"};
    overrides.insert(overrides.end(), services.begin(), services.end());
    return TrainingRun(overrides, {}, "digits-high-noise");
  }

  ScopedDirectory scratch_;
  const std::string model_ = Path("model");
  std::string prompts_;
};

TEST_F(GenevalRunTest, ItsScoreTrainsARun) {
  TrainingRun one = Train({});
  // Groups come in another order, and each server scores a part of them.
  TrainingRun many = Train(
      {"services.rollout_workers=2", "services.reward_servers=2", "services.groups_in_flight=1"});
  for (TrainingRun* run : {&one, &many}) {
    ASSERT_EQ(run->WaitExit().value(), 0) << run->process().error_output();
    EXPECT_THAT(run->Series("train/samples_unscored"), AllOf(SizeIs(3), Each(0)));
    // Where the detector finds nothing, every sample has 0, and where it finds one thing, the same.
    EXPECT_THAT(run->Series("train/reward_std"), AllOf(SizeIs(3), Each(Gt(0.01))));
    EXPECT_THAT(run->Series("train/reward_mean"), Each(AllOf(Gt(0), Lt(1))));
    EXPECT_THAT(run->Series("eval/reward_mean"), Each(AllOf(Gt(0), Lt(1))));
  }
  for (const char* key : {"train/reward_mean", "train/loss", "eval/reward_mean"}) {
    EXPECT_EQ(one.Series(key), many.Series(key)) << key;
  }
  EXPECT_EQ(one.FinalWeights(), many.FinalWeights());
}

TEST_F(GenevalRunTest, ItsSetMeasuresByTagAndItsFoldersMeasureTheSame) {
  auto drawn_flags = Keys();
  drawn_flags.insert(drawn_flags.end(), {"--model", model_, "--json"});
  const Outcome drawn = Eval(drawn_flags);
  ASSERT_EQ(drawn.exit_code, 0) << drawn.message;
  const auto report = nlohmann::json::parse(drawn.output);
  ASSERT_EQ(report["rows"].size(), 3u);
  EXPECT_EQ(report["rows"][0]["group"], "single_object");
  EXPECT_EQ(report["rows"][2]["group"], "overall");
  EXPECT_THAT(report["rows"][0]["identity"].get<std::string>(), HasSubstr("geneval/official/1"));

  auto export_flags = Keys();
  export_flags.insert(export_flags.end(), {"--model", model_, "--export-images", Path("out")});
  ASSERT_EQ(Eval(export_flags).exit_code, 0);
  EXPECT_THAT(*ReadFile(Path("out/00001/metadata.jsonl")), HasSubstr("two_object"));
  EXPECT_TRUE(std::filesystem::exists(Path("out/00003/samples/0003.png")));
  auto read_flags = Keys();
  read_flags.insert(read_flags.end(), {"--images", Path("out"), "--json"});
  const Outcome read = Eval(read_flags);
  ASSERT_EQ(read.exit_code, 0) << read.message;
  EXPECT_EQ(nlohmann::json::parse(read.output)["rows"], report["rows"]);
}

TEST_F(GenevalRunTest, AMissingDirectoryIsOneLine) {
  const Outcome outcome = Eval({"--model", model_});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.message, HasSubstr("reward geneval needs the key `model`"));
  EXPECT_EQ(std::count(outcome.message.begin(), outcome.message.end(), '\n'), 1);
}

}  // namespace
}  // namespace oxbow::testing
