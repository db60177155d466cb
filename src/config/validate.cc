// SPDX-License-Identifier: Apache-2.0
#include "config/validate.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "config/chosen_method.h"
#include "config/file_paths.h"
#include "config/memory_parts.h"
#include "config/rules.h"
#include "config/stop_rules.h"
#include "metrics/step_metrics.h"
#include "rewards/remote_server.h"

namespace oxbow::config {
namespace {

namespace pb = google::protobuf;
using v1::RunConfig;

// Steps whose groups a learner collects beyond the one it is about to train. None: it trains as
// soon as the groups of a step are complete.
constexpr uint32_t kPipelineDepth = 0;

constexpr double kLearningRateMax = 1e-2;
constexpr uint64_t kTrialSteps = 20;

constexpr uint32_t kGroupSizeMin = 4;  // Below it a group's standard deviation is noise.

void EnumsAreChosen(const pb::Message& message, const std::string& prefix, Findings& f) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const pb::FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.is_repeated()) continue;
    const std::string key = absl::StrCat(prefix, field.name());
    if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      EnumsAreChosen(message.GetReflection()->GetMessage(message, &field), absl::StrCat(key, "."),
                     f);
    } else if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_ENUM &&
               message.GetReflection()->GetEnumValue(message, &field) == 0) {
      f.Error(key, "no value is chosen; the config was not resolved over the defaults");
    }
  }
}

void RunRules(const RunConfig& c, Findings& f) {
  const std::string& name = c.run().name();
  f.Require(IsPlainName(name), "run.name",
            "must be a folder name without `/` and control characters that begins with no dot",
            absl::StrCat("\"", absl::Utf8SafeCHexEscape(name), "\""));
  f.Require(!c.run().directory().empty(), "run.directory", "must name a directory", "\"\"");
  f.AtLeast(1, "run.steps", c.run().steps());
  f.ErrorIf(c.run().deterministic() && c.off_policy().staleness_max() != 0, "run.deterministic",
            absl::StrCat(
                "needs off_policy.staleness_max = 0: with staleness, which weights sample a group "
                "depends on timing; staleness_max is ",
                c.off_policy().staleness_max()));
}

// Each rule has one condition on a metric that the run measures.
void StopRules(const RunConfig& c, Findings& f) {
  const std::vector<std::string> known = MetricsForRules(c);
  for (int i = 0; i < c.run().stop_if_size(); ++i) {
    const v1::StopRule& rule = c.run().stop_if(i);
    const std::string problem = MetricProblem(rule.metric(), known);
    if (!problem.empty()) f.Error("run.stop_if", absl::StrCat("[", i, "].metric: ", problem));
    const int conditions = rule.has_below() + rule.has_above() + (rule.no_rise_for() > 0);
    f.ErrorIf(
        conditions != 1, "run.stop_if",
        absl::StrCat("[", i, "] must have one of below, above, no_rise_for; it has ", conditions));
    f.WarnIf(rule.after_step() >= c.run().steps(), "run.stop_if",
             absl::StrCat("[", i, "] never ends the run: after_step is ", rule.after_step(), " of ",
                          c.run().steps(), " steps"));
  }
}

// The best checkpoint is chosen by a number of the evaluation.
void BestRule(const RunConfig& c, Findings& f) {
  const std::string& name = c.checkpoint().best();
  if (name.empty() || c.eval().every() == 0) return;
  std::vector<std::string> known;
  for (std::string& one : MetricsForRules(c)) {
    if (metric::IsOfEvaluation(one)) known.push_back(std::move(one));
  }
  if (const std::string problem = MetricProblem(name, known); !problem.empty()) {
    f.Error("checkpoint.best", absl::StrCat(problem, " (empty: no best checkpoint is kept)"));
  }
}

bool IsDevice(const std::string& device) {
  uint32_t index = 0;
  return device == "cpu" || device == "cuda" ||
         (absl::StartsWith(device, "cuda:") && absl::SimpleAtoi(device.substr(5), &index));
}

void MemoryRules(const RunConfig& c, Findings& f) {
  constexpr char kKey[] = "model.memory";
  const absl::StatusOr<MemoryParts> parts = ParseMemory(c.model());
  if (!parts.ok()) return f.Error(kKey, std::string(parts.status().message()));
  const std::string& text = c.model().memory();
  const bool lora = c.model().trained() == v1::TRAINED_PART_LORA;
  const bool offloads = parts->offload_inputs || parts->offload_optimizer ||
                        parts->offload_average || parts->offload_weights;
  f.Require(!offloads || c.model().device() != "cpu", kKey,
            "offload needs model.device: cuda; on a CPU all is in host memory", text);
  f.Require(!parts->offload_weights || parts->recompute, kKey,
            "offload_weights needs recompute: weights come when a block is recomputed", text);
  f.Require(!parts->offload_inputs || parts->recompute, kKey,
            "offload_inputs needs recompute: it is the inputs of recomputed blocks that go", text);
  f.Require(!parts->guided_apart || lora, kKey,
            "guided_apart needs model.trained: lora; each half has a whole gradient", text);
  f.Require(!parts->offload_weights || lora || !c.ema().enabled() || parts->offload_average, kKey,
            "offload_weights needs offload_average: the average cannot stay where weights do not",
            text);
  f.Require(!parts->shard_gradients || !lora, kKey,
            "shard_gradients needs model.trained: full; the gradients of a LoRA are small", text);
  f.Require(!parts->shard_gradients || !parts->whole_optimizer, kKey,
            "shard_gradients excludes whole_optimizer: a rank updates what it has the gradient of",
            text);
  f.Require(!parts->int8 || lora, kKey, "int8 needs model.trained: lora; int8 weights do not train",
            text);
}

void RolloutTypeRules(const RunConfig& c, Findings& f) {
  const rl::MethodFacts& method = ChosenMethod(c.method());
  f.ErrorIf(RolloutType(c.model()) != c.model().compute_dtype() && method.needs_density(),
            "model.rollout_dtype",
            absl::StrCat("must be as_trained for ", method.name,
                         ", whose ratio is exact only where workers and learner compute alike; ",
                         FinalLatentMethods(" and "), " read no density of the sampled steps"));
}

void ModelRules(const RunConfig& c, Findings& f) {
  const v1::ModelConfig& m = c.model();
  f.Require(!m.path().empty(), "model.path", "must name a diffusers directory", "\"\"");
  f.Require(IsDevice(m.device()), "model.device", "must be cpu, cuda or cuda:N", m.device());
  f.Require(IsDevice(m.encoder_device()), "model.encoder_device", "must be cpu, cuda or cuda:N",
            m.encoder_device());
  f.ErrorIf(m.compute_dtype() == v1::STORAGE_D_TYPE_F16, "model.compute_dtype",
            "must be f32 or bf16: gradients in f16 vanish without loss scaling");
  f.Require(m.encoder_dtype() != v1::STORAGE_D_TYPE_F16, "model.encoder_dtype",
            "must be f32 or bf16, in which T5 does not overflow", "f16");
  RolloutTypeRules(c, f);
  MemoryRules(c, f);
  f.ErrorIf(c.learner().ranks() > 1 && absl::StartsWith(m.device(), "cuda:"), "model.device",
            absl::StrCat("must be cuda with several learner ranks, each on the GPU of its number, "
                         "got ",
                         m.device()));
  f.ErrorIf(m.cuda_graphs() == v1::CUDA_GRAPHS_TRUE && m.device() == "cpu", "model.cuda_graphs",
            "needs a GPU: set it to auto, or model.device to cuda; a CPU has nothing to launch");
  if (m.trained() != v1::TRAINED_PART_LORA) {
    f.Require(m.lora().path().empty(), "model.lora.path",
              "needs model.trained: lora; a run of all weights starts from model.path",
              m.lora().path());
    return;
  }
  f.Require(!MemoryOf(m).int8 || !m.lora().merge_for_rollouts(), "model.lora.merge_for_rollouts",
            "must be false with int8 in model.memory, to which nothing can be added", "true");
  f.ErrorIf(m.lora().merge_for_rollouts() && RolloutType(m) == v1::STORAGE_D_TYPE_BF16,
            "model.lora.merge_for_rollouts",
            "loses most of a young adapter in bf16 weights, whose steps are larger than it; set it "
            "to false, or workers' dtype to f32");
  f.AtLeast(1, "model.lora.rank", m.lora().rank());
  f.AboveZero("model.lora.alpha", m.lora().alpha());
}

void PromptRules(const RunConfig& c, Findings& f) {
  const v1::PromptConfig& p = c.prompts();
  f.Require(!p.train().empty(), "prompts.train",
            "must name a .txt or .jsonl file, or a directory of train and test files", "\"\"");
  f.ErrorIf(c.eval().every() > 0 && p.eval().empty(), "prompts.eval",
            "must name the held-out prompts, or set eval.every to 0");
  // A directory has a file for each split, and no extension.
  const bool file = std::filesystem::path(p.train()).has_extension();
  f.WarnIf(file && p.train() == p.eval(), "prompts.eval",
           "is the training file: evaluation will not show generalisation");
  f.Require(p.t5_length() <= 512, "prompts.t5_length",
            "must be at most 512 tokens, or 0 for the model's own number", p.t5_length());
}

void SamplingRules(const RunConfig& c, Findings& f) {
  const v1::SamplingConfig& s = c.sampling();
  f.Require(s.steps() >= 2, "sampling.steps", "must be at least 2: the last step is never trained",
            s.steps());
  f.Require(s.shift() >= 0, "sampling.shift", "must be above 0, or 0 for the model's own",
            s.shift());
  f.Require(s.shift_terminal() >= 0 && s.shift_terminal() < 1, "sampling.shift_terminal",
            "must be a noise level below 1, or 0 not to stretch the levels", s.shift_terminal());
  f.Require(s.guidance() >= 0 && std::isfinite(s.guidance()), "sampling.guidance",
            "must be at least 0: the pipeline's own scale, which leads away from "
            "sampling.negative_prompt",
            s.guidance());
  f.Require(s.embedded_guidance() >= 0 && std::isfinite(s.embedded_guidance()),
            "sampling.embedded_guidance", "must be above 0, or 0 for the architecture's own",
            s.embedded_guidance());
  CompressionRules(c, f);
  f.ErrorIf(s.noise() == v1::SHARING_STEP, "sampling.noise",
            "must be sample or group: prompts of a learner step have noises of their own");
  if (s.dynamics() == v1::DYNAMICS_KIND_ODE) {
    f.ErrorIf(s.noise() == v1::SHARING_GROUP, "sampling.noise",
              "group with ode gives every image of a prompt the same pixels, and no advantage; "
              "set sampling.noise to sample, or choose stochastic dynamics");
    f.ErrorIf(ChosenMethod(c.method()).needs_density(), "sampling.dynamics",
              absl::StrCat("ode has no density, so policy gradients would be silently wrong; "
                           "choose flow_sde, dance_sde, cps or wan_sde, or a method that needs "
                           "none (",
                           FinalLatentMethods(", "), ")"));
    return;
  }
  f.Require(s.eta() > 0, "sampling.eta", "must be above 0 for a stochastic sampler", s.eta());
  if (s.dynamics() == v1::DYNAMICS_KIND_CPS) {
    f.Require(s.eta() <= 1, "sampling.eta", "must be at most 1 for cps", s.eta());
  }
  f.Require(s.sde_count() >= 1, "sampling.sde_count",
            "must be at least 1: only stochastic steps are trained", s.sde_count());
  const uint64_t end = uint64_t{s.sde_first()} + s.sde_count();
  if (s.steps() >= 2 && end > s.steps() - 1) {
    f.Error(
        "sampling.sde_count",
        absl::StrCat("stochastic steps must end before the last step, whose density is degenerate: "
                     "sde_first + sde_count must be at most ",
                     s.steps() - 1, ", got ", end));
  } else if (s.sde_count() >= 1) {
    WindowRules(s, f);
  }
}

void BatchRules(const RunConfig& c, Findings& f) {
  const v1::BatchConfig& b = c.batch();
  const uint64_t samples = uint64_t{b.groups()} * b.group_size();
  f.AtLeast(1, "batch.groups", b.groups());
  if (b.group_size() < 2) {
    f.Error("batch.group_size",
            absl::StrCat("must be at least 2: an advantage is relative to the group, got ",
                         b.group_size()));
  } else {
    f.Require(b.group_size() >= kGroupSizeMin, "batch.group_size",
              "must be at least 4: the spread of fewer rewards is noise", b.group_size());
  }
  f.AtLeast(1, "batch.updates", b.updates());
  f.AtLeast(1, "batch.passes", b.passes());
  f.ErrorIf(
      b.dynamic_sampling_max() > 0 && c.method().zero_variance() == v1::ZERO_VARIANCE_UNMASKED,
      "batch.dynamic_sampling_max",
      absl::StrCat("replaces groups without variance, which method.zero_variance: unmasked "
                   "trains; set 0, or mask them, got ",
                   b.dynamic_sampling_max()));
  if (samples > 0 && b.updates() > samples) {
    f.Error("batch.updates",
            absl::StrCat("must be at most groups * group_size = ", samples, ", got ", b.updates()));
  } else if (b.updates() >= 1 && samples % b.updates() != 0) {
    f.Warn("batch.updates", absl::StrCat("does not divide groups * group_size = ", samples,
                                         ": updates will be of unequal size, got ", b.updates()));
  }
}

void ReplayRules(const RunConfig& c, Findings& f) {
  const v1::ReplayConfig& r = c.replay();
  f.Require(r.fraction() >= 0 && r.fraction() < 1, "replay.fraction",
            "must be in [0, 1): fresh groups fill the buffer", r.fraction());
  if (r.decay() == v1::DECAY_FORM_MULTIPLICATIVE) {
    f.Require(r.decay_rate() > 0 && r.decay_rate() <= 1, "replay.decay_rate",
              "must be in (0, 1] for multiplicative decay", r.decay_rate());
  } else {
    f.AtLeast(0, "replay.decay_rate", r.decay_rate());
  }
  ReuseRules(c, f);
  if (KeepsSuccesses(c)) {
    f.Require(r.capacity() >= c.batch().groups(), "replay.capacity",
              "must hold the best of one step's groups (batch.groups) at least", r.capacity());
  }
  if (!(r.fraction() > 0 && r.fraction() < 1)) return;
  f.ErrorIf(r.reward() == v1::REPLAY_REWARD_STORED && c.method().reward_mix() != v1::REWARD_MIX_SUM,
            "replay.reward",
            "stored needs method.reward_mix to be sum: an entry keeps the weighted sum alone; set "
            "scored_again");
  const uint32_t replayed = ReplayedGroups(c);
  if (replayed == 0) {
    f.Warn("replay.fraction",
           absl::StrCat("rounds to no replayed group of batch.groups = ", c.batch().groups(),
                        ": raise it, or set 0 and save the buffer"));
  } else if (replayed >= c.batch().groups()) {
    f.Error("replay.fraction", absl::StrCat("rounds to all groups of batch.groups = ",
                                            c.batch().groups(), ": no fresh group would remain"));
  }
}

// A tail is stochastic only where the window goes on after the kept head.
void TailRules(const RunConfig& c, Findings& f) {
  if (c.replay().fraction() <= 0 || c.sampling().tail() != v1::TAIL_KIND_SDE) return;
  const uint64_t end = ReachOf(c.sampling()).end;
  f.WarnIf(!WindowMoves(c.sampling()) && c.method().kept_steps() == end, "sampling.tail",
           absl::StrCat("sde has no effect: the replayed head keeps the whole stochastic window; "
                        "choose ode, or method.kept_steps below ",
                        end));
}

void OffPolicyRules(const RunConfig& c, Findings& f) {
  const v1::OffPolicyConfig& o = c.off_policy();
  f.AtLeast(1, "off_policy.publish_every", o.publish_every());
  const uint64_t needed = uint64_t{o.publish_every()} + kPipelineDepth;
  f.ErrorIf(o.publish_every() >= 1 && uint64_t{o.staleness_max()} + 1 < needed,
            "off_policy.staleness_max",
            absl::StrCat("the run would deadlock: between two publications no worker may sample "
                         "the later steps; must "
                         "be at least publish_every - 1 = ",
                         needed - 1, ", got ", o.staleness_max()));
  f.ErrorIf(o.in_flight_updates() && o.staleness_max() == 0, "off_policy.in_flight_updates",
            "does nothing with off_policy.staleness_max = 0: a group is sampled only once the "
            "weights of its step are there; set staleness_max to 1");
  f.WarnIf(
      c.method().correction() == v1::CORRECTION_BYPASS && o.staleness_max() > 2,
      "method.correction",
      absl::StrCat("bypass assumes little drift; with staleness_max above 2 use sequence, got ",
                   o.staleness_max()));
}

void PublishRules(const RunConfig& c, Findings& f) {
  const double floor = c.publish().reward_floor();
  f.Require(floor >= 0 && floor < 1, "publish.reward_floor",
            "must be in [0, 1): a fraction of the best held-out reward", floor);
  f.ErrorIf(floor > 0 && c.eval().every() == 0, "publish.reward_floor",
            "needs evaluations: set eval.every above 0");
}

void OptimizerRules(const RunConfig& c, Findings& f) {
  const v1::OptimizerConfig& o = c.optimizer();
  f.AboveZero("optimizer.learning_rate", o.learning_rate());
  f.WarnIf(o.learning_rate() > kLearningRateMax, "optimizer.learning_rate",
           absl::StrCat("above ", kLearningRateMax,
                        " training has never been stable: rates are 1e-5 to 1e-3, got ",
                        o.learning_rate()));
  f.Require(o.beta1() >= 0 && o.beta1() < 1, "optimizer.beta1", "must be in [0, 1)", o.beta1());
  f.Require(o.beta2() >= 0 && o.beta2() < 1, "optimizer.beta2", "must be in [0, 1)", o.beta2());
  f.AboveZero("optimizer.epsilon", o.epsilon());
  f.AtLeast(0, "optimizer.weight_decay", o.weight_decay());
  f.AboveZero("optimizer.grad_norm_max", o.grad_norm_max());
  const uint64_t updates = c.run().steps() * UpdatesPerStep(c);
  // A run of a few steps is a trial, whose end nobody looks at.
  f.WarnIf(o.warmup_updates() > 0 && o.warmup_updates() >= updates && c.run().steps() > kTrialSteps,
           "optimizer.warmup_updates",
           absl::StrCat("lasts the whole run of ", updates, " updates, got ", o.warmup_updates()));
  f.Require(o.decay_to() >= 0 && o.decay_to() <= 1, "optimizer.decay_to",
            "must be in [0, 1]: a share of optimizer.learning_rate", o.decay_to());
  if (c.ema().enabled()) {
    f.Require(c.ema().decay_max() >= 0 && c.ema().decay_max() < 1, "ema.decay_max",
              "must be in [0, 1)", c.ema().decay_max());
  }
}

bool IsEndpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  return colon != std::string::npos && colon > 0 &&
         absl::SimpleAtoi(text.substr(colon + 1), &port) && port >= 1 && port <= 65535;
}

void RewardRules(const RunConfig& c, Findings& f) {
  const v1::RewardConfig& r = c.reward();
  f.Require(
      r.terms_size() > 0, "reward.terms",
      "must name at least one reward, such as [{name: pickscore, weight: 1}] with its model in "
      "reward.scorers (docs/rewards.md has them all)",
      "[]");
  std::set<std::string> names;
  for (const v1::RewardTerm& term : r.terms()) {
    f.Require(!term.name().empty(), "reward.terms", "every term needs a name", "\"\"");
    f.Require(term.weight() != 0, "reward.terms",
              "weights must not be 0; move the reward to reward.observed",
              absl::StrCat(term.name(), ": 0"));
    f.Require(names.insert(term.name()).second, "reward.terms", "names must be unique",
              term.name());
  }
  for (const std::string& name : r.observed()) {
    f.Require(!name.empty(), "reward.observed", "every entry needs a name", "\"\"");
    f.Require(names.insert(name).second, "reward.observed", "is trained on or listed already",
              name);
  }
  f.AtLeast(1, "reward.tries", r.tries());
  f.AboveZero("reward.timeout_seconds", r.timeout_seconds());
  std::set<std::string> entries;
  for (const v1::ScorerConfig& scorer : r.scorers()) {
    f.Require(!scorer.name().empty(), "reward.scorers", "every entry needs a name", "\"\"");
    if (scorer.name().empty()) continue;
    f.Require(entries.insert(scorer.name()).second, "reward.scorers", "names must be unique",
              scorer.name());
    f.Require(names.contains(scorer.name()), "reward.scorers",
              "is in neither reward.terms nor reward.observed", scorer.name());
    // Else a picture that is hard to read would look like a reward server that is away.
    f.Require(scorer.deadline_seconds() < r.timeout_seconds(), "reward.scorers",
              "deadline_seconds must be below reward.timeout_seconds", scorer.name());
    if (scorer.url().empty()) continue;
    // Else a server that hangs would look like a reward server that is away.
    const double seconds =
        scorer.timeout_seconds() > 0 ? scorer.timeout_seconds() : rewards::kRemoteSecondsMax;
    f.Require(seconds < r.timeout_seconds(), "reward.scorers",
              "timeout_seconds must be below reward.timeout_seconds", scorer.name());
  }
  for (const std::string& endpoint : r.endpoints()) {
    f.Require(IsEndpoint(endpoint), "reward.endpoints", "must be HOST:PORT", endpoint);
  }
}

void EvalRules(const RunConfig& c, Findings& f) {
  const v1::EvalConfig& e = c.eval();
  if (e.every() > 0)
    f.Require(e.images() >= 1, "eval.images", "must be at least 1, or set eval.every to 0",
              e.images());
  f.WarnIf(e.use_ema() && !c.ema().enabled(), "eval.use_ema",
           "has no effect while ema.enabled is false: the current weights are evaluated");
  f.AtLeast(1, "checkpoint.keep", c.checkpoint().keep());
  BestRule(c, f);
  if (const auto target = ParseCopyTarget(c.checkpoint().copy_to()); !target.ok()) {
    f.Error("checkpoint.copy_to", std::string(target.status().message()));
  }
}

void LearnerRules(const RunConfig& c, Findings& f) {
  const v1::LearnerConfig& l = c.learner();
  f.AtLeast(1, "learner.ranks", l.ranks());
  f.AboveZero("learner.rank_timeout_seconds", l.rank_timeout_seconds());
  f.ErrorIf(l.ranks() >= 1 && c.batch().groups() % l.ranks() != 0, "learner.ranks",
            absl::StrCat("must divide batch.groups, so that every rank gets the "
                         "same number of groups: ",
                         c.batch().groups(), " groups, ", l.ranks(), " ranks"));
}

void ServiceRules(const RunConfig& c, Findings& f) {
  const v1::ServiceConfig& s = c.services();
  f.WarnIf(s.rollout_workers() == 0, "services.rollout_workers",
           "is 0: no worker is started, and the run waits for workers that join (rollout_worker "
           "--learner HOST:PORT)");
  if (c.reward().endpoints_size() == 0) {
    f.Require(s.reward_servers() >= 1, "services.reward_servers",
              "must be at least 1, or list reward.endpoints", s.reward_servers());
  } else if (c.reward().scorers_size() > 0) {
    f.Require(s.reward_servers() >= 1, "services.reward_servers",
              "must be at least 1: they serve the entries of reward.scorers", s.reward_servers());
  }
  f.Require(s.replay_shards() >= 1 && s.replay_shards() <= 64, "services.replay_shards",
            "must be 1 to 64", s.replay_shards());
  f.Require(!s.host().empty() && !absl::StrContains(s.host(), ' '), "services.host",
            "must be a host name or address", absl::StrCat("\"", s.host(), "\""));
  f.AboveZero("services.lease_seconds", s.lease_seconds());
  f.AtLeast(1, "services.groups_in_flight", s.groups_in_flight());
  f.Require(s.speculation_factor() == 0 || s.speculation_factor() >= 1,
            "services.speculation_factor", "must be at least 1, or 0 for no second leases",
            s.speculation_factor());
  f.Require(s.sink_bytes_max() >= 1 << 20, "services.sink_bytes_max",
            "must be at least 1 MiB (1048576)", s.sink_bytes_max());
  f.AtLeast(1, "services.rpc_timeout_seconds", s.rpc_timeout_seconds());
  f.AboveZero("services.patience_minutes", s.patience_minutes());
  f.AtLeast(1, "services.snapshots_kept", s.snapshots_kept());
  f.Require(s.weight_fanout() == 0 || (s.weight_fanout() >= 2 && s.weight_fanout() <= 16),
            "services.weight_fanout", "must be 2 to 16, or 0 for no relaying", s.weight_fanout());
  const std::set<std::string> levels = {"debug", "info", "warning", "error"};
  f.Require(levels.contains(s.log_level()), "services.log_level",
            "must be debug, info, warning or error", s.log_level());
  f.Require(s.log_format() == "text" || s.log_format() == "json", "services.log_format",
            "must be text or json", s.log_format());
}

constexpr void (*kRules[])(const RunConfig&, Findings&) = {
    RunRules,       StopRules,    ModelRules,          PromptRules,     SamplingRules,
    BatchRules,     MethodRules,  ForwardProcessRules, ReplayRules,     TailRules,
    OffPolicyRules, PublishRules, OptimizerRules,      RewardRules,     EvalRules,
    ServiceRules,   LearnerRules, AdaptationRules,     BranchGroupRules};

}  // namespace

std::vector<Problem> Validate(const RunConfig& config) {
  Findings findings;
  EnumsAreChosen(config, "", findings);
  for (const auto& rule : kRules) rule(config, findings);
  return std::move(findings.problems);
}

std::string ProblemLine(const Problem& problem, const Provenance& provenance) {
  const auto source = provenance.find(problem.key);
  return absl::StrCat(source == provenance.end() ? "" : absl::StrCat(source->second, ": "),
                      problem.key, ": ", problem.message);
}

absl::Status FirstError(const std::vector<Problem>& problems, const Provenance& provenance) {
  const Problem* first = nullptr;
  int more = -1;
  for (const Problem& problem : problems) {
    if (problem.severity != Severity::kError) continue;
    if (first == nullptr) first = &problem;
    ++more;
  }
  if (first == nullptr) return absl::OkStatus();
  return absl::Status(
      first->code,
      absl::StrCat(ProblemLine(*first, provenance),
                   more > 0 ? absl::StrCat(" (and ", more, " more; see `oxbow validate`)") : ""));
}

uint32_t ReplayedGroups(const RunConfig& config) {
  return static_cast<uint32_t>(std::lround(config.replay().fraction() * config.batch().groups()));
}

uint64_t UpdatesPerStep(const RunConfig& config) {
  const uint64_t passes = config.batch().passes();
  const uint64_t replayed = KeepsSuccesses(config) ? config.replay().passes() : 0;
  return config.batch().updates() * passes + std::max(replayed, passes) - passes;
}

bool KeepsSuccesses(const RunConfig& config) {
  const v1::ReplayConfig& replay = config.replay();
  return replay.fraction() > 0 || replay.late_binding() || replay.added() > 0;
}

bool UsesReplayBuffer(const RunConfig& config) {
  return KeepsSuccesses(config) || config.adaptation().enabled();
}

uint32_t ReplayBuffersOf(const v1::RunConfig& config) {
  return UsesReplayBuffer(config) ? config.services().replay_shards() : 0;
}

}  // namespace oxbow::config
