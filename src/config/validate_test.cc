// Each rule: the smallest change to a valid run that breaks it, and what is said about it.
#include "config/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oxbow::config {
namespace {

using testing::HasSubstr;

struct RuleCase {
  const char* name;
  std::vector<std::string> set;
  Severity severity;
  const char* key;
  const char* says;
};

std::ostream& operator<<(std::ostream& out, const RuleCase& c) { return out << c.name; }

ResolvedConfig ValidRun(std::vector<std::string> set) {
  set.insert(set.begin(), "recipe=digits-op-grpo");
  return LoadRunConfig({}, set, {}).value();
}

TEST(ValidateTest, AValidRunHasNoProblems) {
  for (const Problem& problem : Validate(ValidRun({}).config)) {
    ADD_FAILURE() << ProblemLine(problem, ValidRun({}).provenance);
  }
}

class RuleTest : public testing::TestWithParam<RuleCase> {};

TEST_P(RuleTest, IsTheOnlyProblemReported) {
  const ResolvedConfig run = ValidRun(GetParam().set);
  const std::vector<Problem> problems = Validate(run.config);
  ASSERT_EQ(problems.size(), 1) << (problems.empty() ? ""
                                                     : ProblemLine(problems[0], run.provenance));
  EXPECT_EQ(problems[0].severity, GetParam().severity);
  EXPECT_EQ(problems[0].key, GetParam().key);
  EXPECT_THAT(problems[0].message, HasSubstr(GetParam().says));
  EXPECT_EQ(HasErrors(problems), GetParam().severity == Severity::kError);
}

constexpr Severity kError = Severity::kError;
constexpr Severity kWarning = Severity::kWarning;

INSTANTIATE_TEST_SUITE_P(
    ValidateTest, RuleTest,
    testing::Values(
        RuleCase{"Deadlock",
                 {"off_policy.publish_every=4", "off_policy.staleness_max=2"},
                 kError,
                 "off_policy.staleness_max",
                 "at least publish_every - 1 = 3, got 2"},
        RuleCase{"PublishNever",
                 {"off_policy.publish_every=0"},
                 kError,
                 "off_policy.publish_every",
                 "at least 1"},
        RuleCase{"DeterministicStale",
                 {"run.deterministic=true", "off_policy.staleness_max=1"},
                 kError,
                 "run.deterministic",
                 "staleness_max = 0"},
        RuleCase{"NameWithSlash", {"run.name=a/b"}, kError, "run.name", "without `/`"},
        RuleCase{"NameParent", {"run.name=.."}, kError, "run.name", "folder name"},
        RuleCase{"NoSteps", {"run.steps=0"}, kError, "run.steps", "at least 1"},
        RuleCase{"NoModel", {"model.path="}, kError, "model.path", "diffusers directory"},
        RuleCase{"Device", {"model.device=gpu"}, kError, "model.device", "cuda:N, got gpu"},
        RuleCase{"LoraRank",
                 {"model.trained=lora", "model.lora.rank=0"},
                 kError,
                 "model.lora.rank",
                 "at least 1"},
        RuleCase{"LoraTargets",
                 {"model.trained=lora", "model.lora.targets=[]"},
                 kError,
                 "model.lora.targets",
                 "suffix"},
        RuleCase{"NoPrompts", {"prompts.train="}, kError, "prompts.train", ".jsonl"},
        RuleCase{"NoT5Length", {"prompts.t5_length=0"}, kError, "prompts.t5_length", "512"},
        RuleCase{"NoEvalPrompts", {"prompts.eval="}, kError, "prompts.eval", "eval.every"},
        RuleCase{"EvalOnTrain",
                 {"prompts.eval=a.txt", "prompts.train=a.txt"},
                 kWarning,
                 "prompts.eval",
                 "training file"},
        RuleCase{"OdeHasNoDensity",
                 {"sampling.dynamics=ode"},
                 kError,
                 "sampling.dynamics",
                 "no density"},
        RuleCase{"NoNoise", {"sampling.eta=0"}, kError, "sampling.eta", "above 0"},
        RuleCase{"CpsEta",
                 {"sampling.dynamics=cps", "sampling.eta=1.5"},
                 kError,
                 "sampling.eta",
                 "at most 1"},
        RuleCase{
            "NothingTrained", {"sampling.sde_count=0"}, kError, "sampling.sde_count", "at least 1"},
        RuleCase{"LastStepTrained",
                 {"sampling.sde_count=10"},
                 kError,
                 "sampling.sde_count",
                 "at most 9, got 10"},
        RuleCase{"WindowPastEnd",
                 {"sampling.sde_first=6"},
                 kError,
                 "sampling.sde_count",
                 "at most 9, got 11"},
        RuleCase{"FixedWindowEmpty",
                 {"sampling.window.kind=fixed"},
                 kError,
                 "sampling.window.steps",
                 "0 to 4, got 0 steps"},
        RuleCase{"FixedWindowFalls",
                 {"sampling.window.kind=fixed", "sampling.window.steps=[3, 1]"},
                 kError,
                 "sampling.window.steps",
                 "rising"},
        RuleCase{"StepsOfNoWindow",
                 {"sampling.window.steps=[1]"},
                 kWarning,
                 "sampling.window.steps",
                 "no effect"},
        RuleCase{"WindowTooLong",
                 {"sampling.window.kind=random", "sampling.window.size=6"},
                 kError,
                 "sampling.window.size",
                 "1 to sampling.sde_count = 5, got 6"},
        RuleCase{"WindowStands",
                 {"sampling.window.kind=progressive", "sampling.window.stride=0"},
                 kError,
                 "sampling.window.stride",
                 "at least 1"},
        RuleCase{"WindowPastKept",
                 {"sampling.window.kind=random", "sampling.window.size=2", "method.kept_steps=3"},
                 kWarning,
                 "method.kept_steps",
                 "sde_first + sde_count = 3"},
        RuleCase{
            "KeptPastFixedWindow",
            {"sampling.window.kind=fixed", "sampling.window.steps=[1, 2]", "method.kept_steps=4"},
            kError,
            "method.kept_steps",
            "from 2 to 3"},
        RuleCase{"Guidance",
                 {"sampling.guidance=4.5"},
                 kError,
                 "sampling.guidance",
                 "not supported yet"},
        RuleCase{"NegativeShift", {"sampling.shift=-1"}, kError, "sampling.shift", "model's own"},
        RuleCase{"NoGroups",
                 {"batch.groups=0", "replay.fraction=0"},
                 kError,
                 "batch.groups",
                 "at least 1"},
        RuleCase{"GroupOfOne",
                 {"batch.group_size=1"},
                 kError,
                 "batch.group_size",
                 "relative to the group"},
        RuleCase{"GroupOfThree", {"batch.group_size=3"}, kError, "batch.group_size", "at least 4"},
        RuleCase{"NoUpdates", {"batch.updates=0"}, kError, "batch.updates", "at least 1"},
        RuleCase{"OneNoiseForAStep",
                 {"sampling.noise=step"},
                 kError,
                 "sampling.noise",
                 "sample or group"},
        RuleCase{"SharedStartWithoutNoiseAfterIt",
                 {"method.name=nft", "replay.fraction=0", "sampling.dynamics=ode",
                  "sampling.noise=group"},
                 kError,
                 "sampling.noise",
                 "the same pixels"},
        RuleCase{"MoreUpdatesThanSamples",
                 {"batch.updates=65"},
                 kError,
                 "batch.updates",
                 "= 64, got 65"},
        RuleCase{"UnevenUpdates", {"batch.updates=3"}, kWarning, "batch.updates", "unequal"},
        RuleCase{"RefillsWhatIsTrained",
                 {"batch.refill_max=4", "method.zero_variance=unmasked"},
                 kError,
                 "batch.refill_max",
                 "or mask them"},
        RuleCase{"NoClip", {"method.clip_range=0"}, kError, "method.clip_range", "in (0, 0.1]"},
        RuleCase{"HugeClip",
                 {"method.clip_range=0.2"},
                 kError,
                 "method.clip_range",
                 "means over elements"},
        RuleCase{"LargeClip",
                 {"method.clip_range=0.02"},
                 kWarning,
                 "method.clip_range",
                 "nothing is clipped"},
        RuleCase{"HugeClipAboveOne",
                 {"method.clip_range_high=0.2"},
                 kError,
                 "method.clip_range_high",
                 "means over elements"},
        RuleCase{"DppoClipsNoRatio",
                 {"method.name=dppo", "method.clip_range=1e-5", "method.clip_range_high=1e-4"},
                 kError,
                 "method.clip_range_high",
                 "clips no ratio"},
        RuleCase{"WeightFloor",
                 {"method.weight_floor=2"},
                 kError,
                 "method.weight_floor",
                 "below method.weight_cap"},
        RuleCase{
            "KeptPastWindow", {"method.kept_steps=6"}, kError, "method.kept_steps", "from 1 to 5"},
        RuleCase{"KeptBeforeWindow",
                 {"sampling.sde_first=2", "method.kept_steps=2"},
                 kError,
                 "method.kept_steps",
                 "from 3 to 7"},
        RuleCase{"NothingKept",
                 {"method.kept_kc_max=0"},
                 kError,
                 "method.kept_kc_max",
                 "kept_steps is 0"},
        RuleCase{"DppoClip",
                 {"method.name=dppo", "method.clip_range=0.2"},
                 kError,
                 "method.clip_range",
                 "divergence of means"},
        RuleCase{"AwmClip",
                 {"method.name=awm", "replay.fraction=0", "method.clip_range=5"},
                 kError,
                 "method.clip_range",
                 "flow-matching loss"},
        RuleCase{"VGrpoClipOfALogProb",
                 {"method.name=v_grpo", "replay.fraction=0", "method.clip_range=1e-5",
                  "method.times.times=group", "method.times.noise=group"},
                 kError,
                 "method.clip_range",
                 "whole picture"},
        RuleCase{"GuardOverCps",
                 {"method.name=guard", "sampling.dynamics=cps"},
                 kError,
                 "method.name",
                 "flow_sde, dance_sde or wan_sde, got cps"},
        RuleCase{"GuardNaive",
                 {"method.name=guard", "method.correction=naive"},
                 kError,
                 "method.correction",
                 "sequence or none"},
        RuleCase{"GuardOverOde",
                 {"method.name=guard", "sampling.dynamics=ode"},
                 kError,
                 "sampling.dynamics",
                 "a method that needs none"},
        RuleCase{"NftReplays", {"method.name=nft"}, kWarning, "replay.fraction", "older policies"},
        RuleCase{"NftStepWeight",
                 {"method.name=nft", "replay.fraction=0", "method.step_weight=noise"},
                 kError,
                 "method.step_weight",
                 "method.times"},
        RuleCase{"NftCorrects",
                 {"method.name=nft", "replay.fraction=0", "method.correction=naive"},
                 kWarning,
                 "method.correction",
                 "no density to correct"},
        RuleCase{"NftOldKl",
                 {"method.name=nft", "replay.fraction=0", "method.old_kl_weight=1"},
                 kError,
                 "method.old_kl_weight",
                 "part of its loss"},
        RuleCase{"GrpoOldKl",
                 {"method.old_kl_weight=1"},
                 kError,
                 "method.old_kl_weight",
                 "method.kl_weight"},
        RuleCase{"GrpoAnchor",
                 {"method.anchor.weight=0.1"},
                 kError,
                 "method.anchor.weight",
                 "method.kl_weight"},
        RuleCase{"AnchorOfNoLevels",
                 {"method.anchor.low=0.8", "method.anchor.high=0.7"},
                 kError,
                 "method.anchor.low",
                 "below method.anchor.high"},
        RuleCase{"DiversityOfEachReward",
                 {"method.diversity.weight=1", "method.reward_mix=gdpo"},
                 kError,
                 "method.diversity.weight",
                 "method.reward_mix to sum"},
        RuleCase{"NichesWiderThanPictures",
                 {"method.diversity.radius=2"},
                 kError,
                 "method.diversity.radius",
                 "black against white"},
        RuleCase{"MoreTimesThanLevels",
                 {"method.name=nft", "replay.fraction=0", "method.times.count=11"},
                 kError,
                 "method.times.count",
                 "sampling.steps = 10"},
        RuleCase{"OwnNoisesInVGrpo",
                 {"method.name=v_grpo", "replay.fraction=0", "method.clip_range=1e-2"},
                 kWarning,
                 "method.times.noise",
                 "to group"},
        RuleCase{"OldPolicyStands",
                 {"method.name=nft", "replay.fraction=0", "method.old_policy.decay=1"},
                 kError,
                 "method.old_policy.decay",
                 "[0, 1)"},
        RuleCase{
            "StepFraction", {"method.step_fraction=0"}, kError, "method.step_fraction", "(0, 1]"},
        RuleCase{"Ddof", {"method.advantage_ddof=2"}, kError, "method.advantage_ddof", "0 or 1"},
        RuleCase{
            "MixOfOne", {"method.reward_mix=gdpo"}, kWarning, "method.reward_mix", "one reward"},
        RuleCase{"ReferenceWithoutPull",
                 {"method.kl_weight=0", "method.reference_every=5"},
                 kWarning,
                 "method.reference_every",
                 "method.kl_weight"},
        RuleCase{"NoPass", {"batch.passes=0"}, kError, "batch.passes", "at least 1"},
        RuleCase{"NegativeKl", {"method.kl_weight=-1"}, kError, "method.kl_weight", "at least 0"},
        RuleCase{"AllReplayed", {"replay.fraction=1"}, kError, "replay.fraction", "[0, 1)"},
        RuleCase{
            "RoundsToAll", {"replay.fraction=0.99"}, kError, "replay.fraction", "no fresh group"},
        RuleCase{"RoundsToNone",
                 {"replay.fraction=0.01"},
                 kWarning,
                 "replay.fraction",
                 "no replayed group"},
        RuleCase{"Growth", {"replay.decay_rate=1.01"}, kError, "replay.decay_rate", "(0, 1]"},
        RuleCase{"SmallBuffer", {"replay.capacity=7"}, kError, "replay.capacity", "batch.groups"},
        RuleCase{"PointlessTail",
                 {"sampling.tail=sde", "method.kept_steps=5"},
                 kWarning,
                 "sampling.tail",
                 "no effect"},
        RuleCase{"StaleBypass",
                 {"method.correction=bypass", "off_policy.staleness_max=3"},
                 kWarning,
                 "method.correction",
                 "little drift"},
        RuleCase{"LearningRate",
                 {"optimizer.learning_rate=0"},
                 kError,
                 "optimizer.learning_rate",
                 "above 0"},
        RuleCase{"Beta", {"optimizer.beta2=1"}, kError, "optimizer.beta2", "[0, 1)"},
        RuleCase{"Ema", {"ema.decay_max=1"}, kError, "ema.decay_max", "[0, 1)"},
        RuleCase{"EmaOff", {"ema.enabled=false"}, kWarning, "eval.use_ema", "no effect"},
        RuleCase{"Warmup",
                 {"optimizer.warmup_updates=200"},
                 kWarning,
                 "optimizer.warmup_updates",
                 "200 updates"},
        RuleCase{"NoReward", {"reward.terms=[]"}, kError, "reward.terms", "at least one reward"},
        RuleCase{"ZeroWeight",
                 {"reward.terms=[{name: a}]"},
                 kError,
                 "reward.terms",
                 "reward.observed, got a: 0"},
        RuleCase{"SameTerm",
                 {"reward.terms=[{name: a, weight: 1}, {name: a, weight: 2}]"},
                 kError,
                 "reward.terms",
                 "unique"},
        RuleCase{"ObservedTwice",
                 {"reward.observed=[digits_ocr]"},
                 kError,
                 "reward.observed",
                 "already"},
        RuleCase{"RewardEndpoint",
                 {"reward.endpoints=[localhost]"},
                 kError,
                 "reward.endpoints",
                 "HOST:PORT"},
        RuleCase{"Tries", {"reward.tries=0"}, kError, "reward.tries", "at least 1"},
        RuleCase{"Keep", {"checkpoint.keep=0"}, kError, "checkpoint.keep", "at least 1"},
        RuleCase{
            "Grid", {"eval.grid_images=129"}, kWarning, "eval.grid_images", "eval.images = 128"},
        RuleCase{"NoWorkers",
                 {"services.rollout_workers=0"},
                 kWarning,
                 "services.rollout_workers",
                 "waits for workers that join"},
        RuleCase{"NoRewardServers",
                 {"services.reward_servers=0"},
                 kError,
                 "services.reward_servers",
                 "reward.endpoints"},
        RuleCase{"NoHost", {"services.host="}, kError, "services.host", "host name"},
        RuleCase{
            "Lease", {"services.lease_seconds=0"}, kError, "services.lease_seconds", "above 0"},
        RuleCase{
            "LogLevel", {"services.log_level=loud"}, kError, "services.log_level", "debug, info"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ValidateTest, MethodsWithoutDensityTakeTheOde) {
  for (const char* name : {"nft", "awm", "v_grpo"}) {
    const ResolvedConfig run = ValidRun({std::string("method.name=") + name, "replay.fraction=0",
                                         "sampling.dynamics=ode", "method.clip_range=1e-2",
                                         "method.times.times=group", "method.times.noise=group"});
    for (const Problem& problem : Validate(run.config)) {
      ADD_FAILURE() << name << ": " << ProblemLine(problem, run.provenance);
    }
  }
}

TEST(ValidateTest, AnUnresolvedConfigIsRefused) {
  EXPECT_TRUE(HasErrors(Validate(v1::RunConfig())));
}

TEST(ValidateTest, ProblemLinesSayWhereTheValueStands) {
  const ResolvedConfig run = ValidRun({"batch.groups=0", "run.steps=0", "sampling.eta=0"});
  const absl::Status status = FirstError(Validate(run.config), run.provenance);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--set: run.steps: must be at least 1, got 0 (and 2 more"));
}

TEST(ValidateTest, ReplayedGroupsRound) {
  EXPECT_EQ(ReplayedGroups(ValidRun({}).config), 2);
  EXPECT_EQ(ReplayedGroups(ValidRun({"replay.fraction=0.19"}).config), 2);
  EXPECT_EQ(ReplayedGroups(ValidRun({"replay.fraction=0.18"}).config), 1);
}

}  // namespace
}  // namespace oxbow::config
