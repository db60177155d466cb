// SPDX-License-Identifier: Apache-2.0
// Every recipe on one node of eight GPUs of 80 GiB. Published networks are counted: shapes by their
// graph in models/graphs, autoencoders by their config, rewards by their number of weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "cli/plan/machine_load.h"
#include "cli/plan/resource_plan.h"
#include "cli/terminal.h"
#include "config/run_config.h"
#include "core/flow/compression.h"
#include "core/flow/window.h"
#include "io/diffusers_directory.h"
#include "io/graph_files.h"
#include "run/model_facts.h"
#include "run/rewards.h"
#include "run/sampling_spec.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kMillionBytes = 1'000'000;
constexpr Gpus kNode = {.count = 8, .bytes = uint64_t{80} << 30};
constexpr Gpus kSmallNode = {.count = 8, .bytes = uint64_t{24} << 30};

constexpr char kKl[] = "AutoencoderKL-sd3";
constexpr char kWan[] = "AutoencoderKLWan-wan2.1-decoder";

struct PublishedModel {
  const char* name;  // Its directory's, or the end of its id.
  const char* graph;
  const char* decoder;     // Its graph.
  uint64_t encoder_bytes;  // The text encoders', in 16 bits.
  int64_t clip_tokens;     // Before those of T5.
};

const PublishedModel kModels[] = {
    {"stable-diffusion-3.5-medium", "SD3Transformer2DModel-sd3.5-medium", kKl,
     12'800 * kMillionBytes, 77},
    {"stable-diffusion-3.5-large", "SD3Transformer2DModel-sd3.5-large", kKl, 12'800 * kMillionBytes,
     77},
    {"FLUX.1-dev", "FluxTransformer2DModel-flux.1-dev", kKl, 10'000 * kMillionBytes, 0},
    {"Wan2.1-T2V-1.3B-Diffusers", "WanTransformer3DModel-wan2.1-t2v-1.3b", kWan,
     11'400 * kMillionBytes, 0},
    {"Wan2.1-T2V-14B-Diffusers", "WanTransformer3DModel-wan2.1-t2v-14b", kWan,
     11'400 * kMillionBytes, 0},
    {"Qwen-Image-2512", "QwenImageTransformer2DModel-qwen-image",
     "AutoencoderKLQwenImage-qwen-image-decoder", 0, 0},
    {"Z-Image", "ZImageTransformer2DModel-z-image", kKl, 0, 0}};

// Weights of a reward's networks, in float32.
const std::map<std::string, uint64_t> kRewardWeights = {{"pickscore", 986 * kMillionBytes},
                                                        {"pickscore_rank", 986 * kMillionBytes},
                                                        {"hpsv2", 986 * kMillionBytes},
                                                        {"clipscore", 428 * kMillionBytes},
                                                        {"geneval", 497 * kMillionBytes},
                                                        {"imagereward", 447 * kMillionBytes},
                                                        {"ocr", 0}};

uint64_t Elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

const PublishedModel* PublishedAt(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  for (const PublishedModel& model : kModels) {
    if (name == model.name) return &model;
  }
  return nullptr;
}

std::string ShippedGraph(const std::string& name) {
  auto json = io::ReadGraphFile(OXBOW_SOURCE_DIR "/models/graphs/" + name + ".json.gz");
  EXPECT_TRUE(json.ok()) << json.status();
  return *std::move(json);
}

// Each is read once, and counts each pass once.
std::shared_ptr<const model::DecoderArchitecture> PublishedDecoder(const std::string& published) {
  static std::map<std::string, std::shared_ptr<const model::DecoderArchitecture>> read;
  if (read.contains(published)) return read.at(published);
  const std::string json = ShippedGraph(published);
  const auto graph = nlohmann::json::parse(json);
  nlohmann::json config = graph["config"];
  config["_class_name"] = graph["class"];
  return read[published] = model::ReadDecoder(config.dump(), json).value();
}

std::shared_ptr<const model::Architecture> PublishedTransformer(const std::string& published) {
  static std::map<std::string, std::shared_ptr<const model::Architecture>> read;
  if (read.contains(published)) return read.at(published);
  const std::string json = ShippedGraph(published);
  const auto graph = nlohmann::json::parse(json);
  const model::ArchitectureSource source = {
      .class_name = graph["class"], .config_json = graph["config"].dump(), .graph_json = json};
  return read[published] = model::ReadArchitecture(source).value();
}

run::ModelFacts FactsOf(const PublishedModel& published, const v1::RunConfig& config) {
  run::ModelFacts facts;
  facts.architecture = PublishedTransformer(published.graph);
  facts.decoder = PublishedDecoder(published.decoder);
  facts.factors = facts.decoder->factors();
  std::map<std::string, io::TensorHeader> headers;
  for (const auto& [name, shape] : facts.architecture->shapes()) {
    headers[name].shape = shape;
    facts.stored_types[name] = io::DType::kBF16;
    facts.transformer_parameters += Elements(shape);
    if (!facts.architecture->buffers().contains(name)) facts.trained_parameters += Elements(shape);
  }
  for (const auto& [name, shape] : facts.decoder->shapes()) {
    if (facts.decoder->InDecoder(name)) facts.decoder_parameters += Elements(shape);
  }
  if (config.model().trained() == v1::TRAINED_PART_LORA) {
    v1::ModelConfig model = config.model();
    run::FillLoraTargets(*facts.architecture, model);
    const auto lora = run::LoraSizeOf(headers, model.lora());
    EXPECT_TRUE(lora.ok()) << lora.status();
    facts.trained_parameters = lora->parameters;
    facts.adapted_parameters = lora->adapted;
  }
  for (const io::Pipeline& pipeline : io::PipelineTable()) {
    if (pipeline.components.front().class_name != facts.architecture->class_name()) continue;
    facts.guidance = io::GuidanceScale(pipeline, config.sampling().guidance());
    break;
  }
  facts.text_encoder_bytes = published.encoder_bytes;
  facts.prompt_tokens = published.clip_tokens + config.prompts().t5_length();
  const auto latent = [&](const v1::SamplingConfig& sampling) {
    return model::LatentShape(facts.architecture->latent(), facts.factors,
                              run::PictureSizeOf(sampling))
        .value();
  };
  facts.latent_shape = latent(config.sampling());
  facts.evaluated_shape = latent(run::EvaluationSampling(config));
  return facts;
}

BytesOfDevices RewardsOf(const v1::RewardConfig& reward) {
  std::map<std::string, std::map<std::string, uint64_t>> by_model;  // Rewards share networks.
  for (const std::string& name : run::OwnRewards(reward)) {
    const v1::ScorerConfig entry = run::ScorerOf(reward, name);
    const std::string device = entry.device().empty() ? "cpu" : entry.device();
    by_model[device][entry.model()] = 4 * kRewardWeights.at(name);
  }
  BytesOfDevices bytes;
  for (const auto& [device, models] : by_model) {
    for (const auto& [model, count] : models) bytes[device] += count;
  }
  return bytes;
}

std::vector<ProcessRow> RowsOf(const v1::RunConfig& config, int gpus) {
  const PublishedModel* const published = PublishedAt(config.model().path());
  EXPECT_NE(published, nullptr) << config.model().path();
  return ProcessRows(config, FactsOf(*published, config), RewardsOf(config.reward()), gpus);
}

// A recipe's config, settled as `oxbow train` does it.
v1::RunConfig RecipeOn(const std::string& recipe, const Gpus& gpus,
                       std::vector<std::string> set = {}) {
  set.insert(set.begin(), "recipe=" + recipe);
  config::ResolvedConfig resolved = config::LoadRunConfig({}, set, {}, gpus.count).value();
  if (const PublishedModel* const published = PublishedAt(resolved.config.model().path())) {
    Settle(FactsOf(*published, resolved.config), RewardsOf(resolved.config.reward()), gpus,
           resolved);
  }
  return resolved.config;
}

using ::testing::HasSubstr;

class EveryRecipeTest : public ::testing::TestWithParam<std::pair<std::string, std::string>> {};

// Promise: Each process has a device that holds it.
TEST_P(EveryRecipeTest, ARecipeFitsEightGpusOfEightyGigabytes) {
  const v1::RunConfig config = RecipeOn(GetParam().first, kNode);
  if (config.model().device() == "cpu") GTEST_SKIP() << "no GPU asked for";
  if (config.reward().terms().empty()) GTEST_SKIP() << "others build on it";
  const std::vector<ProcessRow> rows = RowsOf(config, kNode.count);
  const std::string table = ProcessTable(rows, kNode);
  const auto problem = CheckGpuLoad(config, rows, kNode);
  EXPECT_FALSE(problem.has_value()) << problem->key << ": " << problem->message << "\n" << table;
  const auto loads = LoadOfGpus(rows);
  EXPECT_EQ(loads.size(), static_cast<size_t>(kNode.count)) << "a GPU is idle\n" << table;
  if (std::getenv("OXBOW_PRINT_TABLES") != nullptr) {
    std::cout << table << "host " << (HostBytes(rows) >> 30) << " GiB\n";
  }
  for (const ProcessRow& row : rows) {
    EXPECT_FALSE(row.kind == ProcessKind::kReward && row.gpu == 0) << "beside rank 0\n" << table;
  }
}

INSTANTIATE_TEST_SUITE_P(OneNode, EveryRecipeTest, ::testing::ValuesIn(config::Recipes()),
                         [](const auto& info) {
                           std::string name = info.param.first;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

uint64_t FullestGpu(const std::vector<ProcessRow>& rows) {
  uint64_t fullest = 0;
  for (const auto& [gpu, load] : LoadOfGpus(rows)) fullest = std::max(fullest, load.bytes());
  return fullest;
}

// A row of a layout's table in docs/one_node.md.
std::string LayoutLine(const std::string& recipe, int count,
                       const std::vector<std::string>& set = {}) {
  const Gpus gpus = {.count = count, .bytes = kNode.bytes};
  const v1::RunConfig config = RecipeOn(recipe, gpus, set);
  const std::vector<ProcessRow> rows = RowsOf(config, count);
  std::string rewards = "-";
  for (const auto& [gpu, load] : LoadOfGpus(rows)) {
    if (load.reward_bytes > 0) rewards = absl::StrCat("GPU ", gpu);
  }
  const auto problem = CheckGpuLoad(config, rows, gpus);
  return absl::StrCat("| ", count, " | ", config.learner().ranks(), " | ",
                      config.services().rollout_workers(), " | ", rewards, " | ",
                      BytesText(FullestGpu(rows)),
                      problem.has_value() ? absl::StrCat(", too much: `", problem->key, "`") : "",
                      " | ", BytesText(HostBytes(rows)), " |");
}

// The first of these values of model.memory with which no GPU has more on it than it holds.
std::string FirstThatFits(const std::string& recipe, const Gpus& gpus, std::vector<std::string> set,
                          const std::vector<std::string>& memories) {
  for (const std::string& memory : memories) {
    set.push_back("model.memory=" + memory);
    if (FullestGpu(RowsOf(RecipeOn(recipe, gpus, set), gpus.count)) <= gpus.bytes) return memory;
  }
  return memories.back();
}

// Promise: A run takes the memory that its GPUs have. With `model.memory: auto` a run takes the
// first rung of the ladder whose processes fit each GPU by the count of `oxbow validate`, once, and
// keeps it over a resume. On a CPU, and where no GPU is known, nothing is chosen.
TEST(OneNodeTest, AutoTakesTheFirstMemoryThatFits) {
  const std::vector<std::string> lora = {
      "fast",
      "recompute",
      "recompute + int8",
      "recompute + int8 + guided_apart",
      "recompute + int8 + guided_apart + offload_inputs",
      "recompute + int8 + guided_apart + offload_inputs + offload_weights"};
  const std::string shards = "recompute + shard_gradients";
  const std::vector<std::string> full = {
      "fast",
      "recompute",
      shards,
      shards + " + offload_optimizer",
      shards + " + offload_optimizer + offload_average",
      shards + " + offload_optimizer + offload_average + offload_weights"};
  const auto chosen = [](const std::string& recipe, const Gpus& gpus,
                         std::vector<std::string> set) {
    set.push_back("model.memory=auto");
    return RecipeOn(recipe, gpus, set).model().memory();
  };
  for (const uint64_t gib : {80, 48, 24}) {
    const Gpus gpus = {.count = 8, .bytes = gib << 30};
    EXPECT_EQ(chosen("sd35l-pickscore", gpus, {"model.trained=full"}),
              FirstThatFits("sd35l-pickscore", gpus, {"model.trained=full"}, full))
        << gib;
    EXPECT_EQ(chosen("flux-dev", gpus, {}), FirstThatFits("flux-dev", gpus, {}, lora)) << gib;
  }
  // Weights, gradients and average of eight billion parameters are 96 GB.
  EXPECT_THAT(chosen("sd35l-pickscore", kNode, {"model.trained=full"}), HasSubstr(shards));
  // The base alone is 24 GB.
  EXPECT_NE(chosen("flux-dev", kSmallNode, {}), "fast");
  EXPECT_EQ(chosen("flux-dev", {.count = 8, .bytes = 0}, {}), "fast") << "their size is not known";
  EXPECT_EQ(chosen("flux-dev", kNode, {"model.device=cpu"}), "fast");
  EXPECT_EQ(RecipeOn("flux-dev", kNode, {"model.memory=small"}).model().memory(), lora[2])
      << "a run's config has the parts by name";
}

TEST(OneNodeTest, TheChoiceIsSaidAndTheRunsConfigHasIt) {
  config::ResolvedConfig resolved =
      config::LoadRunConfig({}, {"recipe=flux-dev", "model.memory=auto"}, {}, kSmallNode.count)
          .value();
  Settle(FactsOf(*PublishedAt(resolved.config.model().path()), resolved.config), {}, kSmallNode,
         resolved);
  const std::string memory = resolved.config.model().memory();
  const std::vector<ProcessRow> rows = RowsOf(resolved.config, kSmallNode.count);
  EXPECT_THAT(MemoryChoice(resolved, rows, kSmallNode), HasSubstr("auto -> " + memory + ", "));
  EXPECT_THAT(MemoryChoice(resolved, rows, kSmallNode),
              HasSubstr(" of 24.0 GiB on the fullest GPU"));
  EXPECT_THAT(config::ResolvedYaml(resolved), HasSubstr("# auto\n"));
  resolved.chosen_memory = false;
  EXPECT_EQ(MemoryChoice(resolved, rows, kSmallNode), "") << "what was said is not chosen";
}

// Weights that come over the bus come once a pass.
TEST(OneNodeTest, AutoTakesPassesAsLargeAsMemoryAllowsWhereWeightsComeOverTheBus) {
  const std::vector<std::string> full = {"model.trained=full", "model.memory=auto",
                                         "batch.rows_per_pass=1"};
  const Gpus large = {.count = 8, .bytes = uint64_t{24} << 30};
  const v1::RunConfig widened = RecipeOn("sd35l-pickscore", large, full);
  ASSERT_THAT(widened.model().memory(), HasSubstr("offload_weights"));
  EXPECT_NE(widened.batch().rows_per_pass(), 1u);
  EXPECT_FALSE(CheckGpuLoad(widened, RowsOf(widened, large.count), large).has_value());
  std::vector<std::string> by_hand = full;
  by_hand[1] = "model.memory=" + widened.model().memory();
  EXPECT_EQ(RecipeOn("sd35l-pickscore", large, by_hand).batch().rows_per_pass(), 1u)
      << "who names the parts names the rows";
  EXPECT_EQ(RecipeOn("sd35l-pickscore", kNode, full).batch().rows_per_pass(), 1u)
      << "weights stay on these GPUs";
}

TEST(OneNodeTest, RowsThatFitAreAnUpdateOrAPartOfIt) {
  v1::RunConfig config = RecipeOn("sd35l-pickscore", kNode, {"batch.rows_per_pass=2"});
  const auto most = [&](uint32_t limit) {
    return RowsThatFit(config, [&](const v1::RunConfig& tried) {
      const uint32_t rows = tried.batch().rows_per_pass();
      return rows > 0 && rows <= limit;
    });
  };
  EXPECT_EQ(RowsThatFit(config, [](const v1::RunConfig&) { return true; }), 0u) << "all";
  EXPECT_EQ(most(1), 2u) << "no fewer than were asked for";
  EXPECT_GT(most(8), 4u);
  EXPECT_LE(most(8), 8u);
}

// "256Gi".
uint64_t GibibytesOf(const YAML::Node& size) {
  const auto text = size.as<std::string>();
  EXPECT_TRUE(text.ends_with("Gi")) << text;
  return std::strtoull(text.c_str(), nullptr, 10) << 30;
}

// The pod of deploy/k8s/node: its GPUs all have a rank and a worker, and its memory holds
// them and what they share.
// Promise: Manifests match the binaries.
TEST(OneNodeTest, APodHasTheMemoryOfEachOverlaysPlan) {
  const std::string k8s = OXBOW_SOURCE_DIR "/deploy/k8s/";
  const YAML::Node job = YAML::LoadAllFromFile(k8s + "node/train.yaml").back();
  const YAML::Node pod = job["spec"]["template"]["spec"];
  const YAML::Node limits = pod["containers"][0]["resources"]["limits"];
  const Gpus gpus = {.count = limits["nvidia.com/gpu"].as<int>(), .bytes = kNode.bytes};
  uint64_t shared = 0;
  for (const YAML::Node& volume : pod["volumes"]) {
    const YAML::Node memory = volume["emptyDir"];
    if (memory && memory["medium"]) shared += GibibytesOf(memory["sizeLimit"]);
  }
  const auto resolved =
      config::LoadRunConfig(k8s + "overlays/sd35m-node/run.yaml", {}, {}, gpus.count);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const v1::RunConfig& config = resolved->config;
  EXPECT_EQ(config.learner().ranks(), 8);
  EXPECT_EQ(config.services().rollout_workers(), 8);
  const std::vector<ProcessRow> rows = RowsOf(config, gpus.count);
  EXPECT_FALSE(CheckGpuLoad(config, rows, gpus).has_value()) << ProcessTable(rows, gpus);
  EXPECT_LE(HostBytes(rows) + shared, GibibytesOf(limits["memory"])) << ProcessTable(rows, gpus);
}

TEST(OneNodeTest, ThePageHasTheLayoutsOfThePlan) {
  const std::string page = ReadFile(OXBOW_SOURCE_DIR "/docs/one_node.md", 1 << 20).value();
  const auto expect = [&](const std::string& line) { EXPECT_THAT(page, HasSubstr(line)); };
  const std::string kOffloaded =
      "model.memory=recompute + shard_gradients + offload_optimizer + offload_weights";
  for (const int gpus : {1, 2, 4, 8}) {
    expect(LayoutLine("sd35m-pickscore", gpus));
    expect(LayoutLine("flux-dev-dance", gpus));
    expect(LayoutLine("flux-dev-dance", gpus, {kOffloaded}));
    expect(LayoutLine("wan21-flow-factory", gpus));
  }
}

// The line of a header up to its number, and the number.
struct Stated {
  std::string words;
  double number = 0;
};

// The number behind these words at the beginning of a line; -1 where no line has them.
double NumberBehind(const std::string& words, const std::string& text) {
  const size_t at = text.find("\n" + words);
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + 1 + words.size(), nullptr);
}

// The layout of a recipe on so many GPUs of 80 GiB: as the recipe has it, or where that is too much
// with the last rung of model.memory.
Stated LayoutOf(const std::string& recipe, int count) {
  const Gpus gpus = {.count = count, .bytes = kNode.bytes};
  std::string memory, excess;
  v1::RunConfig config = RecipeOn(recipe, gpus);
  uint64_t fullest = FullestGpu(RowsOf(config, count));
  if (fullest > gpus.bytes) {
    memory = "with model.memory=smallest ";
    config = RecipeOn(recipe, gpus, {"model.memory=smallest"});
    fullest = FullestGpu(RowsOf(config, count));
    if (fullest > gpus.bytes) excess = "too much, ";
  }
  return {absl::StrCat("# gpus ", count, ": ", memory, excess, "ranks ", config.learner().ranks(),
                       ", workers ", config.services().rollout_workers(), ", GiB "),
          static_cast<double>(fullest) / (1 << 30)};
}

// Floating-point operations of a forward pass of one row: two for each weight of a linear layer and
// token that passes it, and those of attention. `latent` is [C, ..., H, W], in patches of 2 x 2.
double ForwardFlop(const run::ModelFacts& facts, const std::vector<int64_t>& latent) {
  const auto text = static_cast<double>(facts.prompt_tokens);
  const double image = static_cast<double>(Elements(latent) / latent.front()) / 4;
  const bool wan = facts.architecture->class_name() == "WanTransformer3DModel";
  double flop = 0;
  for (const auto& [name, shape] : facts.architecture->shapes()) {
    if (shape.size() != 2) continue;
    const auto has = [&name](std::initializer_list<const char*> parts) {
      return std::any_of(parts.begin(), parts.end(),
                         [&name](const char* part) { return absl::StrContains(name, part); });
    };
    const bool crossing = wan && has({"attn2.to_k", "attn2.to_v"});
    double tokens = image;
    if (has({"single_", "layers."})) tokens = image + text;
    if (crossing || has({"add_", "_context.", "txt_", "context_", "cap_", "text_embed"}))
      tokens = text;
    if (has({"norm", "_mod.", "adaLN", "time", "guidance", "t_embedder"})) tokens = 1;
    flop += 2.0 * static_cast<double>(shape[0] * shape[1]) * tokens;
    if (!absl::EndsWith(name, "to_q.weight")) continue;
    const double seen = !wan ? tokens == text ? text : image + text : has({"attn2"}) ? text : image;
    flop += 4.0 * static_cast<double>(shape[0]) * (wan ? image : seen) * seen;
  }
  return flop;
}

// The images of a group's tree at a step; without splits all of the group.
double WidthAt(const v1::RunConfig& config, int step) {
  double width = 1;
  for (const uint32_t split : config.sampling().split_steps()) {
    if (static_cast<int>(split) <= step) width *= config.sampling().split_width();
  }
  return config.sampling().split_steps().empty() ? config.batch().group_size() : width;
}

// The share of a run's sampling steps that compression leaves in place.
double StepsLeft(const v1::RunConfig& config) {
  const auto steps = static_cast<int>(config.sampling().steps());
  const double share = config.sampling().compression().share();
  if (share >= 1) return 1;
  const flow::WindowPlan window = run::WindowFromConfig(config.sampling()).value();
  double taken = 0;
  for (uint64_t step = 0; step < config.run().steps(); ++step) {
    const int behind = flow::WindowAt(window, config.run().seed(), step).back() + 1;
    taken += behind + flow::CompressedSteps(share, steps - behind);
  }
  return taken / (static_cast<double>(config.run().steps()) * steps);
}

// Floating-point operations of a run, by count: forward passes of sampling, of evaluation and of
// policies that losses compare with; a backward pass is two more, recomputed blocks another one.
double RunFlop(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const double halves = facts.guidance > 1 ? 2 : 1;
  const v1::MethodConfig& method = config.method();
  double sampled = 0, trained = 0;
  for (int step = 0; step < static_cast<int>(config.sampling().steps()); ++step) {
    sampled += WidthAt(config, step);
  }
  sampled *= StepsLeft(config);
  for (int step = 0; step < static_cast<int>(run::TrainedSteps(config)); ++step) {
    trained += method.step_fraction() * WidthAt(config, step);
  }
  const double passes = 3 + (absl::StrContains(config.model().memory(), "recompute") ? 1 : 0) +
                        (method.kl_weight() > 0 ? 1 : 0) +
                        (method.name() == v1::METHOD_NAME_V_GRPO ? 1 : 0);
  const double step = config.batch().groups() * halves * ForwardFlop(facts, facts.latent_shape) *
                      (sampled + passes * trained * config.batch().passes());
  const double drawn =
      config.eval().images() * halves *
      (config.eval().steps() > 0 ? config.eval().steps() : config.sampling().steps());
  const double evaluation =
      config.eval().every() > 0
          ? drawn * ForwardFlop(facts, facts.evaluated_shape) / config.eval().every()
          : 0;
  return config.run().steps() * (step + evaluation);
}

// Hours on eight GPUs, and gigabytes of disk without encoded prompts.
std::vector<Stated> EstimatesOf(const std::string& recipe) {
  constexpr double kFlopsOfNode = 8 * 150e12;  // As src/simulate/presets.cc assumes of a GPU.
  const v1::RunConfig config = RecipeOn(recipe, kNode);
  const run::ModelFacts facts = FactsOf(*PublishedAt(config.model().path()), config);
  return {{"# hours on 8 GPUs at 150 TFLOP/s each: ", RunFlop(config, facts) / kFlopsOfNode / 3600},
          {"# disk besides encoded prompts, GB: ",
           static_cast<double>(DiskBytesNeeded(config, facts)) / 1e9}};
}

// Where a published network has been counted while it ran: 8 rows of SD3.5-M of 512 px and 205
// tokens (docs/lab/gpu.md).
TEST(OneNodeTest, ForwardPassesAreCounted) {
  const v1::RunConfig config = RecipeOn("sd35m-pickscore", kNode);
  const run::ModelFacts facts = FactsOf(*PublishedAt(config.model().path()), config);
  EXPECT_NEAR(8 * ForwardFlop(facts, facts.latent_shape), 17.95e12, .02 * 17.95e12);
}

// The header of each recipe of a published size states where it is from, what oxbow reads into it,
// and the layouts and costs that the plan counts.
// Promise: Each process has a device that holds it.
TEST(OneNodeTest, HeadersOfRecipesHaveTheLayoutsOfThePlan) {
  int published = 0;
  for (const auto& [recipe, text] : config::Recipes()) {
    const v1::RunConfig config = RecipeOn(recipe, kNode);
    if (PublishedAt(config.model().path()) == nullptr) continue;
    for (const char* const part : {"# source: ", "\n# read: "}) {
      EXPECT_THAT(text, HasSubstr(part)) << recipe;
    }
    if (config.reward().terms().empty()) continue;  // Others build on it.
    ++published;
    for (const int gpus : {1, 2, 4, 8}) {
      const Stated layout = LayoutOf(recipe, gpus);
      EXPECT_NEAR(NumberBehind(layout.words, text), layout.number, 1)
          << recipe << " needs " << layout.words << layout.number;
    }
    for (const Stated& estimate : EstimatesOf(recipe)) {
      EXPECT_NEAR(NumberBehind(estimate.words, text), estimate.number, 1 + .1 * estimate.number)
          << recipe << " needs " << estimate.words << estimate.number;
    }
  }
  EXPECT_GE(published, 47);
}

}  // namespace
}  // namespace oxbow::cli
