// SPDX-License-Identifier: Apache-2.0
// Tests of the loader: every key of the schema has a default, every error is one line with its
// place, every source has its precedence, and a written config reads back the same.
#include "config/run_config.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_split.h"
#include "base/nearest_name.h"
#include "config/fingerprint.h"
#include "config/validate.h"

namespace oxbow::config {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A run file in its own directory.
class RunFile {
 public:
  explicit RunFile(const std::string& text, const std::string& name = "run.yaml") {
    std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(test.begin(), test.end(), '/', '_');
    path_ = std::filesystem::path(::testing::TempDir()) /
            (test + "_" + std::to_string(::getpid()) + "_" + name);
    std::ofstream(path_) << text;
  }
  ~RunFile() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }
  absl::StatusOr<ResolvedConfig> Load() const { return LoadRunConfig(path_, {}, {}); }

 private:
  std::filesystem::path path_;
};

TEST(RunConfigTest, EveryKeyOfTheSchemaHasADefaultOfItsOwn) {
  const auto resolved = LoadRunConfig({}, {}, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  for (const std::string& key : LeafKeys(*v1::RunConfig::descriptor())) {
    EXPECT_EQ(resolved->provenance.count(key), 1)
        << key << " is missing from configs/defaults.yaml";
  }
}

TEST(RunConfigTest, EveryRecipeAndShippedRunIsValid) {
  ASSERT_FALSE(Recipes().empty());
  for (const auto& [name, text] : Recipes()) {
    const auto resolved = LoadRunConfig({}, {"recipe=" + name}, {});
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_EQ(resolved->config.run().name(), name);
    std::vector<std::string> keys;
    for (const Problem& problem : Validate(resolved->config)) keys.push_back(problem.key);
    if (name == "sd35m" || name == "flux-dev" || name == "wan21") {  // Other recipes build on it.
      EXPECT_THAT(keys, ::testing::ElementsAre("prompts.train", "prompts.eval", "reward.terms"));
    } else if (!name.starts_with("digits")) {
      EXPECT_THAT(keys, ::testing::IsEmpty()) << name;
    } else {
      EXPECT_TRUE(FirstError(Validate(resolved->config), resolved->provenance).ok()) << name;
    }
  }
  const auto run = LoadRunConfig(OXBOW_SOURCE_DIR "/configs/digits.yaml", {}, {});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(FirstError(Validate(run->config), run->provenance), absl::OkStatus());
}

TEST(RunConfigTest, TheFlowGrpoRecipeDiffersFromOpGrpoInReplayAlone) {
  auto op = LoadRunConfig({}, {"recipe=digits-op-grpo"}, {}).value().config;
  auto flow = LoadRunConfig({}, {"recipe=digits-flow-grpo"}, {}).value().config;
  EXPECT_EQ(flow.replay().fraction(), 0);
  flow.mutable_run()->set_name(op.run().name());
  flow.mutable_replay()->set_fraction(op.replay().fraction());
  EXPECT_TRUE(MessageDifferencer::Equals(op, flow));
}

// The published settings of Flow-GRPO, for each task and variant.
TEST(RunConfigTest, TheSd35RecipesAreThePublishedSettings) {
  const auto recipe = [](const std::string& name) {
    return LoadRunConfig({}, {"recipe=" + name}, {}).value().config;
  };
  const struct {
    const char* task;
    double kl_weight;
    uint32_t held_out;
  } tasks[] = {{"ocr", 0.04, 1018}, {"geneval", 0.04, 2212}, {"pickscore", 0.01, 2048}};
  for (const auto& task : tasks) {
    SCOPED_TRACE(task.task);
    const std::string name = std::string("sd35m-") + task.task;
    const v1::RunConfig base = recipe(name);
    EXPECT_EQ(base.batch().groups() * base.batch().group_size(), 1152u);
    EXPECT_EQ(base.batch().updates(), 2u);
    EXPECT_EQ(base.sampling().guidance(), 4.5);
    EXPECT_EQ(base.sampling().eta(), 0.7);
    EXPECT_EQ(base.method().clip_range(), 1e-4);
    EXPECT_EQ(base.method().kl_weight(), task.kl_weight);
    EXPECT_EQ(base.method().kl_space(), v1::KL_SPACE_MEAN);
    EXPECT_EQ(base.model().lora().rank(), 32u);
    EXPECT_EQ(base.model().lora().alpha(), 64);
    EXPECT_EQ(base.prompts().t5_length(), 128u);
    EXPECT_EQ(base.eval().images(), task.held_out);
    EXPECT_EQ(base.eval().steps(), 40u);
    EXPECT_EQ(base.replay().fraction(), 0);
    ASSERT_EQ(base.reward().terms_size(), 1);
    EXPECT_EQ(base.reward().terms(0).name(), task.task);
    const v1::RunConfig fast = recipe(name + "-fast");
    EXPECT_EQ(fast.sampling().guidance(), 4.5);
    EXPECT_EQ(fast.sampling().window().size(), 2u);
    const v1::RunConfig nocfg = recipe(name + "-nocfg");
    EXPECT_EQ(nocfg.sampling().guidance(), 1);
    EXPECT_EQ(nocfg.sampling().dynamics(), v1::DYNAMICS_KIND_CPS);
    EXPECT_EQ(nocfg.sampling().window().size(), 3u);
    EXPECT_EQ(nocfg.batch().groups() * nocfg.batch().group_size(), 1152u);
    for (const v1::RunConfig& variant : {fast, nocfg}) {
      EXPECT_EQ(variant.sampling().eta(), 0.8);
      EXPECT_EQ(variant.sampling().sde_count(), 5u);
      EXPECT_EQ(variant.sampling().window().kind(), v1::WINDOW_KIND_RANDOM);
      EXPECT_EQ(variant.method().clip_range(), 1e-5);
      EXPECT_EQ(variant.method().kl_weight(), 0);
    }
    for (const char* variant : {"", "-fast", "-nocfg"}) {
      EXPECT_GT(recipe(name + variant + "-op").replay().fraction(), 0) << variant;
    }
  }
  EXPECT_EQ(recipe("sd35m-pickscore-nocfg").batch().group_size(), 18u);
}

// The published settings of Flow-GRPO, DanceGRPO and V-GRPO.
TEST(RunConfigTest, TheFluxRecipesAreThePublishedSettings) {
  const auto recipe = [](const std::string& name) {
    return LoadRunConfig({}, {"recipe=flux-dev-" + name}, {}).value().config;
  };
  const v1::RunConfig base = recipe("pickscore");
  EXPECT_EQ(base.batch().groups() * base.batch().group_size(), 1152u);
  EXPECT_EQ(base.sampling().steps(), 6u);
  EXPECT_EQ(base.sampling().sde_count(), 5u);
  EXPECT_EQ(base.sampling().eta(), 0.9);
  EXPECT_EQ(base.eval().steps(), 28u);
  EXPECT_EQ(base.method().clip_range(), 1e-4);
  EXPECT_EQ(base.method().kl_weight(), 0);
  EXPECT_EQ(base.method().advantage_std(), v1::ADVANTAGE_STD_GLOBAL);
  EXPECT_EQ(base.model().lora().rank(), 64u);
  EXPECT_EQ(base.model().lora().alpha(), 128);
  EXPECT_EQ(base.model().lora().targets_size(), 12);
  EXPECT_EQ(base.prompts().t5_length(), 128u);
  const v1::RunConfig fast = recipe("pickscore-fast");
  EXPECT_EQ(fast.sampling().dynamics(), v1::DYNAMICS_KIND_CPS);
  EXPECT_EQ(fast.sampling().eta(), 0.8);
  EXPECT_EQ(fast.sampling().window().size(), 3u);
  EXPECT_EQ(fast.sampling().sde_count(), 3u);
  EXPECT_EQ(fast.method().clip_range(), 1e-5);
  EXPECT_EQ(fast.method().advantage_std(), v1::ADVANTAGE_STD_GROUP);
  EXPECT_EQ(recipe("pickscore-op").replay().fraction(), 0.125);
  const v1::RunConfig dance = recipe("dance");
  EXPECT_EQ(dance.sampling().shift(), 3);
  EXPECT_EQ(dance.sampling().noise(), v1::SHARING_GROUP);
  EXPECT_EQ(dance.method().step_fraction(), 0.6);
  EXPECT_EQ(dance.batch().groups() * dance.batch().group_size(), 192u);
  for (const auto& [name, height, rate] :
       {std::tuple("pickscore", 512u, 3e-4), {"dance", 720u, 1e-5}, {"v-grpo", 720u, 1e-5}}) {
    const v1::RunConfig run = recipe(name);
    EXPECT_EQ(run.sampling().embedded_guidance(), 3.5) << name;
    EXPECT_EQ(run.sampling().guidance(), 1) << name;
    EXPECT_EQ(run.sampling().height(), height) << name;
    EXPECT_EQ(run.optimizer().learning_rate(), rate) << name;
  }
}

TEST(RunConfigTest, ARecipeBuildsOnAnotherAndEachValueNamesItsOwn) {
  const auto resolved = LoadRunConfig({}, {"recipe=sd35m-geneval-fast-op"}, {}).value();
  EXPECT_EQ(resolved.provenance.at("replay.fraction"), "recipe sd35m-geneval-fast-op");
  EXPECT_EQ(resolved.provenance.at("method.clip_range"), "recipe sd35m-geneval-fast");
  EXPECT_EQ(resolved.provenance.at("prompts.train"), "recipe sd35m-geneval");
  EXPECT_EQ(resolved.provenance.at("batch.groups"), "recipe sd35m");
  EXPECT_EQ(resolved.provenance.at("method.correction"), "default");
}

TEST(RunConfigTest, ChosenValuesAloneReadBackTheSame) {
  const auto resolved = LoadRunConfig({}, {"recipe=sd35m-geneval-fast-op"}, {}).value();
  const std::string yaml = ChosenYaml(resolved);
  EXPECT_EQ(yaml.find("correction"), std::string::npos);
  EXPECT_EQ(yaml.find("publish"), std::string::npos) << "sections without a value are left out";
  const auto read = RunFile(yaml).Load();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(MessageDifferencer::Equals(read->config, resolved.config)) << yaml;
}

struct Mistake {
  const char* name;
  const char* yaml;
  const char* message;  // The text after the file's path.
};

std::ostream& operator<<(std::ostream& out, const Mistake& m) { return out << m.name; }

class MistakeTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(MistakeTest, IsOneLineWithItsPlace) {
  const RunFile file(GetParam().yaml);
  const auto resolved = file.Load();
  ASSERT_FALSE(resolved.ok());
  EXPECT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(resolved.status().message());
  EXPECT_THAT(message, HasSubstr(file.path().string() + ":" + GetParam().message));
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    RunConfigTest, MistakeTest,
    ::testing::Values(
        Mistake{"UnknownKey", "run:\n  name: a\nbatch:\n  group_sise: 8\n",
                "4: batch.group_sise: unknown key; did you mean `group_size`?"},
        Mistake{"UnknownSection", "\nbtch: {groups: 8}\n",
                "2: btch: unknown key; did you mean `batch`?"},
        Mistake{"UnknownKeyInFlowMap", "run: {name: a}\nbatch: {groups: 8,\n  updats: 2}\n",
                "3: batch.updats: unknown key; did you mean `updates`?"},
        Mistake{"NothingNear", "ema:\n  zzzzzzzzz: 1\n",
                "2: ema.zzzzzzzzz: unknown key; known here: enabled, decay_max"},
        Mistake{"UnknownKeyInList", "reward:\n  terms:\n    - {name: a, wight: 1}\n",
                "3: reward.terms[0].wight: unknown key; did you mean `weight`?"},
        Mistake{"BadEnum", "sampling:\n  dynamics: flowsde\n",
                "2: sampling.dynamics: expected one of ode, flow_sde, dance_sde, cps, wan_sde, got "
                "\"flowsde\""},
        Mistake{"UnspecifiedIsNoChoice", "sampling: {dynamics: unspecified}\n",
                "1: sampling.dynamics: expected one of ode"},
        Mistake{"TextForNumber", "batch:\n  groups: many\n",
                "2: batch.groups: expected a whole number from 0 to 4294967295, got \"many\""},
        Mistake{"NegativeCount", "batch: {groups: -1}\n",
                "1: batch.groups: expected a whole number"},
        Mistake{"FractionForCount", "batch: {groups: 1.5}\n",
                "1: batch.groups: expected a whole number"},
        Mistake{"TooLargeCount", "batch: {groups: 4294967296}\n",
                "1: batch.groups: expected a whole number"},
        Mistake{"NotFinite", "sampling: {eta: .nan}\n",
                "1: sampling.eta: expected a number, got \".nan\""},
        Mistake{"Infinite", "sampling: {eta: inf}\n",
                "1: sampling.eta: expected a number, got \"inf\""},
        Mistake{"YesForBool", "run:\n  deterministic: yes\n",
                "2: run.deterministic: expected true or false, got \"yes\""},
        Mistake{"ListForNumber", "batch: {groups: [1]}\n",
                "1: batch.groups: expected a whole number"},
        Mistake{"ScalarForList", "reward: {observed: a}\n",
                "1: reward.observed: expected a list, each text, got \"a\""},
        Mistake{"ScalarForSection", "batch: 3\n", "1: batch: expected a section, got \"3\""},
        Mistake{"SectionForText", "run: {name: {a: b}}\n",
                "1: run.name: expected text, got a section"},
        Mistake{"MissingValue", "run:\n  name:\n", "2: run.name: expected text, got nothing"},
        Mistake{"DuplicateKey", "run:\n  name: a\n  seed: 1\n  name: b\n",
                "4: run.name: the key is given twice; keep one"},
        Mistake{"DuplicateSection", "run: {name: a}\nrun: {seed: 1}\n",
                "2: run: the key is given twice; keep one"},
        Mistake{"Syntax", "run:\n  name: [a\nbatch: 3\n", "3:"},
        Mistake{"BeginsWithAComma", ", steps: 3\n", "1:1: not valid YAML"},
        Mistake{"LinesInAValue", "sampling:\n  dynamics: \"a\\nb\\xff\"\n",
                "2: sampling.dynamics: expected one of ode, flow_sde, dance_sde, cps, wan_sde, got "
                "\"a b"},
        Mistake{"LinesInAKey", "run:\n  \"a\\nb\": 1\n", "2: run.a b: unknown key"},
        Mistake{"LinesInARecipe", "recipe: \"a\\nb\"\n", "1: recipe: no recipe of that name"},
        Mistake{"SecondDocument", "run: {name: a}\n---\nrun: {name: b}\n", "2: a second document"},
        Mistake{"ListAtTop", "- run\n", "1: expected sections"},
        Mistake{
            "UnknownRecipe", "run: {name: a}\nrecipe: digits-op-grp\n",
            "2: recipe: no recipe of that name; did you mean `digits-op-grpo`? (digits-op-grp)"},
        Mistake{"TheBeginningOfARecipe", "recipe: plates\n",
                "1: recipe: no recipe of that name; known: plates-ocr; or the path"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(RunConfigTest, AllMistakesOfAFileAreSaidAtOnceALineEach) {
  const RunFile file(
      "rum: {name: a}\n"
      "batch:\n  group_sise: 8\n  groups: many\n  updates: 2\n"
      "reward:\n  terms:\n    - {name: a, wight: 1}\n    - b\n"
      "sampling: {dynamics: flowsde}\n");
  const auto resolved = file.Load();
  ASSERT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<std::string> lines = absl::StrSplit(resolved.status().message(), '\n');
  const std::string path = file.path().string();
  ASSERT_EQ(lines.size(), 6u) << resolved.status();
  EXPECT_THAT(lines[0], StartsWith(path + ":1: rum: unknown key"));
  EXPECT_THAT(lines[1], StartsWith(path + ":3: batch.group_sise: unknown key"));
  EXPECT_THAT(lines[2], StartsWith(path + ":4: batch.groups: expected a whole number"));
  EXPECT_THAT(lines[3], StartsWith(path + ":8: reward.terms[0].wight: unknown key"));
  EXPECT_THAT(lines[4], StartsWith(path + ":9: reward.terms[1]: expected a section"));
  EXPECT_THAT(lines[5], StartsWith(path + ":10: sampling.dynamics: expected one of"));
  EXPECT_EQ(LoadRunConfig({}, {"run.setps=1", "run.seed=x"}, {}).status().message(),
            "--set: run.setps: unknown key; did you mean `steps`?\n"
            "--set: run.seed: expected a whole number from 0 to 2^64 - 1, got \"x\"");
}

// Promise: Older runs go on. A key that is gone may still be given with the value that is left, and
// fingerprints still have it. Another value is refused by name.
TEST(RunConfigTest, AFormerKeyTakesTheValueThatIsLeft) {
  const RunFile kept(
      "run: {name: a}\nmethod: {weight_log_clamp: 20.0, weight_scale: mean, nft: {advantage: "
      "all}}\n"
      "learner: {drift_check_every: 50}\n");
  const auto resolved = LoadRunConfig(kept.path(), {"replay.same_window=false"}, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_THAT(FingerprintText(resolved->config, FingerprintAge::kPresent),
              HasSubstr("  correction: CORRECTION_SEQUENCE\n  weight_scale: WEIGHT_SCALE_MEAN\n"));
  EXPECT_EQ(
      LoadRunConfig({}, {"method.weight_scale=sum"}, {}).status().message(),
      "--set: method.weight_scale: this key is gone, and mean is what remains of it: remove the "
      "key");
  const RunFile other("method:\n  nft: {advantage: [all]}\n");
  EXPECT_THAT(std::string(other.Load().status().message()),
              HasSubstr(":2: method.nft.advantage: this key is gone, and all is what remains"));
}

TEST(RunConfigTest, AMissingFileIsNotFoundAndOneOfANearNameIsSaid) {
  const std::string configs = OXBOW_SOURCE_DIR "/configs";
  for (const char* const missing : {"/configs/digit.yaml", "/config/digits.yml"}) {
    const auto none = LoadRunConfig(std::string(OXBOW_SOURCE_DIR) + missing, {}, {});
    EXPECT_TRUE(absl::IsNotFound(none.status()));
    EXPECT_THAT(std::string(none.status().message()),
                HasSubstr("; did you mean `" + configs + "/digits.yaml`?"));
  }
  const auto far = LoadRunConfig(configs + "/another/name.yaml", {}, {}).status();
  EXPECT_TRUE(absl::IsNotFound(far));
  EXPECT_THAT(std::string(far.message()), ::testing::Not(HasSubstr("did you mean")));
}

TEST(RunConfigTest, EachSourceBeatsTheNextAndIsNamed) {
  // Five keys; each is set by one source and by all sources of lower precedence.
  const RunFile file(
      "recipe: digits-op-grpo\n"
      "batch:\n  groups: 30\n  group_size: 31\n"
      "sampling: {sde_count: 4}\n");
  const std::vector<std::string> environment = {"HOME=/x", "OXBOW__BATCH__GROUPS=20",
                                                "OXBOW__BATCH__GROUP_SIZE=21"};
  const auto resolved =
      LoadRunConfig(file.path(), {"batch.groups=9", "batch.groups=10"}, environment);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const v1::RunConfig& config = resolved->config;
  const Provenance& provenance = resolved->provenance;
  const std::string path = file.path().string();

  EXPECT_EQ(config.batch().groups(), 10);  // The later --set wins.
  EXPECT_EQ(provenance.at("batch.groups"), "--set");
  EXPECT_EQ(config.batch().group_size(), 21);
  EXPECT_EQ(provenance.at("batch.group_size"), "environment OXBOW__BATCH__GROUP_SIZE");
  EXPECT_EQ(config.sampling().sde_count(), 4);
  EXPECT_EQ(provenance.at("sampling.sde_count"), path + ":5");
  EXPECT_EQ(config.replay().fraction(), 0.25);
  EXPECT_EQ(provenance.at("replay.fraction"), "recipe digits-op-grpo");
  EXPECT_EQ(config.ema().decay_max(), 0.9);
  EXPECT_EQ(provenance.at("ema.decay_max"), "default");
}

TEST(RunConfigTest, OverridesAreTypedByTheSchema) {
  const auto resolved = LoadRunConfig(
      {},
      {"reward.terms=[{name: a, weight: 2}, {name: b, weight: -0.5}]", "reward.observed=[c, d]",
       "run.name=007: x", "prompts.eval=", "method.clip_range=1e-4", "sampling.storage=bf16",
       "batch={groups: 3, updates: 1}"},
      {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const v1::RunConfig& config = resolved->config;
  ASSERT_EQ(config.reward().terms_size(), 2);
  EXPECT_EQ(config.reward().terms(1).name(), "b");
  EXPECT_EQ(config.reward().terms(1).weight(), -0.5);
  EXPECT_EQ(config.reward().observed_size(), 2);
  EXPECT_EQ(config.run().name(), "007: x");
  EXPECT_EQ(config.prompts().eval(), "");
  EXPECT_EQ(config.method().clip_range(), 1e-4);
  EXPECT_EQ(config.sampling().storage(), v1::STORAGE_D_TYPE_BF16);
  EXPECT_EQ(config.batch().groups(), 3);
  EXPECT_EQ(resolved->provenance.at("batch.updates"), "--set");
  EXPECT_EQ(resolved->provenance.at("batch.group_size"), "default");
}

TEST(RunConfigTest, WrongOverridesNameTheirSource) {
  const auto message = [](std::vector<std::string> set, std::vector<std::string> environment) {
    return std::string(LoadRunConfig({}, set, environment).status().message());
  };
  EXPECT_EQ(message({"batch.grups=3"}, {}),
            "--set: batch.grups: unknown key; did you mean `groups`?");
  EXPECT_EQ(message({"batch.groups.x=3"}, {}).substr(0, 44),
            "--set: batch.groups: has no parts; it is a w");
  EXPECT_EQ(message({"batch.groups"}, {}).substr(0, 29), "--set: expected KEY=VALUE, fo");
  EXPECT_EQ(message({"reward.terms=[{"}, {}).substr(0, 22), "--set: not valid YAML:");
  EXPECT_EQ(message({}, {"OXBOW__RUN__NAMES=a"}),
            "environment OXBOW__RUN__NAMES: run.names: unknown key; did you mean `name`?");
}

// OXBOW_ is also the beginning of names that are no keys.
TEST(RunConfigTest, AKeyWithOneUnderscoreIsRefusedWithTheNameThatIsMeant) {
  const auto set = [](const std::string& variable) {
    return std::string(LoadRunConfig({}, {}, {variable}).status().message());
  };
  EXPECT_EQ(set("OXBOW_RUN_STEPS=3"),
            "environment OXBOW_RUN_STEPS: parts are joined by two underscores; did you mean "
            "OXBOW__RUN__STEPS?");
  EXPECT_THAT(set("OXBOW_METHOD_OLD_POLICY_DECAY=0.5"),
              HasSubstr("did you mean OXBOW__METHOD__OLD_POLICY__DECAY?"));
  for (const char* other :
       {"OXBOW_TORCH_DIR=/x", "OXBOW_PLAINTEXT=1", "OXBOW_RUN=runs/a", "RUN_STEPS=3", "OXBOW_=1"}) {
    EXPECT_EQ(set(other), "") << other;
  }
}

TEST(RunConfigTest, ARewardThatIsReplacedTakesItsEntryOfTheRecipeAlong) {
  const auto scorers = [](std::vector<std::string> set) {
    set.insert(set.begin(), "recipe=sd35m-pickscore");
    return LoadRunConfig({}, set, {}).value().config.reward().scorers_size();
  };
  const std::string other = "reward.terms=[{name: digits_ocr, weight: 1}]";
  EXPECT_EQ(scorers({}), 1);
  EXPECT_EQ(scorers({other}), 0);
  EXPECT_EQ(scorers({other, "reward.observed=[pickscore]"}), 1);
  EXPECT_EQ(scorers({other, "reward.scorers=[{name: pickscore}]"}), 1) << "a mistake is said";
}

TEST(RunConfigTest, AKeyGoesOnIntoAnEntryOfAListByItsName) {
  const auto resolved = LoadRunConfig(
      {}, {"recipe=sd35m-pickscore", "reward.scorers.pickscore.model=/models/a.b"}, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_EQ(resolved->config.reward().scorers_size(), 1);
  EXPECT_EQ(resolved->config.reward().scorers(0).model(), "/models/a.b");
  EXPECT_EQ(resolved->config.reward().scorers(0).device(), "cuda");
  EXPECT_EQ(resolved->provenance.at("reward.scorers"), "--set");
  const auto refused = [](const std::string& assignment) {
    return std::string(
        LoadRunConfig({}, {"recipe=sd35m-pickscore", assignment}, {}).status().message());
  };
  EXPECT_EQ(refused("reward.scorers.hpsv2.model=/m"),
            "--set: reward.scorers: has no entry named `hpsv2`; it has pickscore");
  EXPECT_THAT(refused("reward.scorers.pickscore.modle=/m"), HasSubstr("did you mean `model`?"));
  EXPECT_THAT(refused("reward.scorers.pickscore=/m"), HasSubstr("a key of one of its entries"));
}

TEST(RunConfigTest, AListReplacesTheListUnderIt) {
  const RunFile file("model: {lora: {targets: [only]}}\n");
  const auto resolved = file.Load();
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_EQ(resolved->config.model().lora().targets_size(), 1);
}

TEST(RunConfigTest, AWrittenConfigReadsBackTheSameAndHoldsEveryKey) {
  auto resolved =
      LoadRunConfig({},
                    {"recipe=digits-op-grpo", "optimizer.learning_rate=0.1234567890123456789",
                     "run.seed=18446744073709551615", "sampling.eta=1e-300"},
                    {})
          .value();
  resolved.config.mutable_run()->set_name("quo\"te \\ # : \n tab\t ümlaut null");
  resolved.config.mutable_prompts()->set_eval("null");
  const RunFile file("");
  ASSERT_TRUE(WriteResolved(resolved, file.path()).ok());
  const auto read = LoadResolved(file.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*read, resolved.config)) << ResolvedYaml(resolved);

  const YAML::Node root = YAML::LoadFile(file.path());
  for (const std::string& key : LeafKeys(*v1::RunConfig::descriptor())) {
    YAML::Node node = YAML::Clone(root);
    for (std::stringstream parts(key); parts.good();) {
      std::string part;
      std::getline(parts, part, '.');
      node.reset(node[part]);
    }
    EXPECT_TRUE(node.IsDefined()) << key;
  }
  EXPECT_THAT(ResolvedYaml(resolved), HasSubstr("# recipe digits-op-grpo"));
}

TEST(NearestNameTest, TakesTypingErrorsAndNothingElse) {
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(NearestName("grup", {"name", "group", "groups"}), "group");
  EXPECT_EQ(NearestName("temperature", {"name", "group"}), "");
}

// Three files: a run, and recipes below it.
class RecipeFilesTest : public ::testing::Test {
 protected:
  RecipeFilesTest() {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_ / "mine");
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
  }
  absl::StatusOr<ResolvedConfig> Load(const std::string& name) const {
    return LoadRunConfig(directory_ / name, {}, {});
  }

  const std::filesystem::path directory_ =
      std::filesystem::path(::testing::TempDir()) /
      ("recipe_files_" + std::to_string(::getpid()) +
       ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(RecipeFilesTest, AFileBuildsOnAFileBesideItAndThatOnABuiltInOne) {
  Write("run.yaml", "recipe: mine/base.yaml\nbatch: {groups: 3}\n");
  Write("mine/base.yaml", "recipe: common.yaml\nbatch: {groups: 5, updates: 7}\n");
  Write("mine/common.yaml", "recipe: digits-op-grpo\noptimizer: {learning_rate: 0.25}\n");
  const auto resolved = Load("run.yaml");
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->config.batch().groups(), 3u);
  EXPECT_EQ(resolved->config.batch().updates(), 7u);
  EXPECT_EQ(resolved->config.optimizer().learning_rate(), 0.25);
  EXPECT_EQ(resolved->config.model().path(), "models/digits") << "of the built-in recipe";
  EXPECT_TRUE(resolved->provenance.at("batch.updates").ends_with("mine/base.yaml:2"));
}

TEST_F(RecipeFilesTest, ACycleIsNamedAndNotFollowed) {
  Write("run.yaml", "recipe: mine/a.yaml\n");
  Write("mine/a.yaml", "recipe: ./b.yaml\n");
  Write("mine/b.yaml", "recipe: ../mine/a.yaml\n");
  const auto resolved = Load("run.yaml");
  EXPECT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(resolved.status().message()), HasSubstr("recipe: a cycle: "));
  EXPECT_THAT(std::string(resolved.status().message()), HasSubstr("b.yaml builds on "));
}

TEST_F(RecipeFilesTest, AFileThatIsNotThereIsNamedWithItsPlace) {
  Write("run.yaml", "recipe: mine/none.yaml\n");
  EXPECT_THAT(std::string(Load("run.yaml").status().message()),
              ::testing::AllOf(HasSubstr("run.yaml:1: recipe: "), HasSubstr("mine/none.yaml")));
}

TEST_F(RecipeFilesTest, FilesAreFoundFromTheRunFileUp) {
  Write("prompts.txt", "a\n");
  Write("mine/eval.txt", "b\n");
  Write("mine/run.yaml", "prompts: {train: prompts.txt, eval: eval.txt, cache: nowhere}\n");
  const auto resolved = Load("mine/run.yaml");
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->config.prompts().train(), (directory_ / "prompts.txt").string());
  EXPECT_EQ(resolved->config.prompts().eval(), (directory_ / "mine/eval.txt").string());
  EXPECT_EQ(resolved->config.prompts().cache(), "nowhere");
}

// A run that was renamed or moved is the one in the directory, and its values are from where they
// were.
// Promise: A run goes on wherever it lies.
TEST_F(RecipeFilesTest, ARunIsLoadedAgainWhereverItLies) {
  Write("run.yaml", "recipe: digits-op-grpo\nrun: {name: a, directory: /nowhere, steps: 7}\n");
  const ResolvedConfig before = *Load("run.yaml");
  std::filesystem::create_directories(directory_ / "moved" / "b.1");
  for (const std::string place : {"moved/b.1", "moved/b.1/", "moved/./b.1/."}) {
    const auto run_dir = directory_ / "moved" / "b.1";
    ASSERT_TRUE(WriteResolved(before, run_dir / kResolvedConfig).ok());
    const auto again = LoadRunAgain(directory_ / place, {"batch.groups=3"}, {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->config.run().name(), "b.1");
    EXPECT_EQ(again->config.run().directory(), (directory_ / "moved").string());
    EXPECT_EQ(again->provenance.at("run.steps"), before.provenance.at("run.steps"));
    EXPECT_EQ(again->provenance.at("batch.groups"), "--set");
    EXPECT_EQ(RecipesOf(again->provenance), RecipesOf(before.provenance));
    v1::RunConfig same = again->config;
    *same.mutable_run() = before.config.run();
    same.mutable_batch()->set_groups(before.config.batch().groups());
    EXPECT_EQ(same.SerializeAsString(), before.config.SerializeAsString());
  }
}

TEST(RunConfigTest, AKeyWithoutItsSectionIsPointedTo) {
  for (const char* name : {"learning_rate", "lr"}) {
    const auto resolved = LoadRunConfig({}, {std::string(name) + "=1e-4"}, {});
    EXPECT_THAT(std::string(resolved.status().message()),
                HasSubstr("did you mean `optimizer.learning_rate`?"));
  }
  EXPECT_THAT(std::string(LoadRunConfig({}, {"optimizer.lr=1e-4"}, {}).status().message()),
              HasSubstr("did you mean `learning_rate`?"));
}

}  // namespace
}  // namespace oxbow::config
