// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/resource_plan.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/memory_limits.h"
#include "cli/terminal.h"
#include "config/chosen_method.h"
#include "config/file_paths.h"
#include "config/memory_parts.h"
#include "core/flow/window.h"
#include "core/model/int8_weights.h"
#include "core/parallel/sharded_gradient.h"
#include "io/picture_file.h"
#include "io/prompts/prompt_store.h"
#include "io/report/report.h"
#include "io/report/sheets.h"
#include "run/prompt_files.h"
#include "run/rewards.h"
#include "run/sampling_spec.h"
#include "run/trainer_options.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kFloatBytes = 4;
// The numbers of a step in metrics.jsonl, steps.jsonl and TensorBoard's events.
constexpr uint64_t kStepRecordBytes = 16 << 10;

bool IsMixedPrecision(const v1::RunConfig& config) {
  return config.model().compute_dtype() == v1::STORAGE_D_TYPE_BF16;
}

bool IsLora(const v1::RunConfig& config) {
  return config.model().trained() == v1::TRAINED_PART_LORA;
}

// `width` bytes for each element.
uint64_t BytesOf(const std::vector<int64_t>& shape, uint64_t width) {
  return std::accumulate(shape.begin(), shape.end(), width, std::multiplies<>());
}

// Names of the weights that are kept as int8.
std::set<std::string> Int8NamesOf(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const bool int8 = run::BaseWeightsOf(config.model()) == model::BaseWeights::kInt8;
  return int8 && facts.architecture != nullptr ? model::Int8Names(*facts.architecture)
                                               : std::set<std::string>();
}

bool OnGpu(const v1::RunConfig& config) { return config.model().device() != "cpu"; }

model::Execution ExecutionOf(const v1::RunConfig& config) {
  const config::MemoryParts memory = config::MemoryOf(config.model());
  return {.compute = IsMixedPrecision(config) ? at::kBFloat16 : at::kFloat,
          .checkpoint_activations = memory.recompute,
          .inputs_on_host = memory.offload_inputs};
}

// A pass over so many samples.
model::ForwardSize PassOf(const v1::RunConfig& config, const run::ModelFacts& facts,
                          uint64_t samples) {
  const auto rows = static_cast<int64_t>(samples);
  std::vector<std::string> adapters;
  if (IsLora(config)) {
    const auto& targets = config.model().lora().targets();
    adapters.assign(targets.begin(), targets.end());
  }
  return {.rows = facts.guidance == 1 ? rows : 2 * rows,
          .on_cpu = !OnGpu(config),
          .adapters = std::move(adapters),
          .latent_shape = facts.latent_shape,
          .prompt_tokens = facts.prompt_tokens};
}

uint64_t ActivationBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  if (facts.architecture == nullptr) return 0;
  // An anchor asks for one more row of each sample.
  const uint64_t anchored =
      config.method().anchor().weight() > 0
          ? run::RowsOfPass(config) / std::max<uint64_t>(1, run::TrainedSteps(config))
          : 0;
  model::ForwardSize pass = PassOf(config, facts, run::RowsOfPass(config) + anchored);
  const bool apart = facts.guidance != 1 && config::MemoryOf(config.model()).guided_apart;
  if (apart) pass.rows /= 2;
  return facts.architecture->ActivationBytes(ExecutionOf(config), pass);
}

// Samples that a worker draws and decodes together: those of all groups that it holds.
uint64_t SamplesTogether(const v1::RunConfig& config) {
  return uint64_t{config.services().groups_in_flight()} * config.batch().group_size();
}

// Memory that the network takes while a worker samples.
uint64_t SamplingBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  if (facts.architecture == nullptr) return 0;
  model::ForwardSize pass = PassOf(config, facts, SamplesTogether(config));
  const int64_t rows_max = config.sampling().rows_per_forward();
  if (rows_max > 0) pass.rows = std::min(pass.rows, rows_max);
  return facts.architecture->SamplingBytes(ExecutionOf(config), pass);
}

uint64_t DecodingBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  if (facts.decoder == nullptr) return 0;
  return facts.decoder->DecodingBytes(
      facts.latent_shape, static_cast<int64_t>(SamplesTogether(config)), !OnGpu(config));
}

// Memory that an evaluation of another size takes: network and autoencoder, one after the other.
// One of the run's own size is not counted.
uint64_t EvaluationBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  if (config.eval().every() == 0 || facts.architecture == nullptr ||
      facts.evaluated_shape.empty() || facts.evaluated_shape == facts.latent_shape) {
    return 0;
  }
  const int64_t samples =
      std::min<int64_t>(config.eval().images(),
                        run::PicturesOfLease(config, facts.latent_shape, facts.evaluated_shape));
  model::ForwardSize pass = PassOf(config, facts, static_cast<uint64_t>(samples));
  pass.latent_shape = facts.evaluated_shape;
  const int64_t rows_max = config.sampling().rows_per_forward();
  if (rows_max > 0) pass.rows = std::min(pass.rows, rows_max);
  const uint64_t network = facts.architecture->SamplingBytes(ExecutionOf(config), pass);
  if (facts.decoder == nullptr) return network;
  return std::max(network,
                  facts.decoder->DecodingBytes(facts.evaluated_shape, samples, !OnGpu(config)));
}

// Whether workers draw with other weights than those that are published.
bool EvaluatesAverage(const v1::RunConfig& config) {
  return config.eval().every() > 0 && config.eval().use_ema() && config.ema().enabled();
}

// Weights that stay float32 whatever the compute dtype is.
uint64_t ExactParameters(const run::ModelFacts& facts) {
  uint64_t count = 0;
  if (facts.architecture == nullptr) return count;
  const std::set<std::string>& exact = facts.architecture->float32();
  for (const auto& [name, shape] : facts.architecture->shapes()) {
    if (exact.contains(name)) {
      count += BytesOf(shape, 1);
    }
  }
  return count;
}

uint64_t ComputeBytes(const v1::RunConfig& config) {
  return IsMixedPrecision(config) ? kFloatBytes / 2 : kFloatBytes;
}

// Sizes of the weights that are kept as int8.
struct Int8Sizes {
  uint64_t parameters = 0;
  uint64_t rows = 0;
  uint64_t largest = 0;
};

Int8Sizes Int8SizesOf(const v1::RunConfig& config, const run::ModelFacts& facts) {
  Int8Sizes sizes;
  const std::set<std::string> names = Int8NamesOf(config, facts);
  if (names.empty()) return sizes;
  const model::Shapes shapes = facts.architecture->shapes();
  for (const std::string& name : names) {
    const std::vector<int64_t>& shape = shapes.at(name);
    const auto rows = static_cast<uint64_t>(shape[0]);
    const uint64_t parameters = rows * static_cast<uint64_t>(shape[1]);
    sizes.parameters += parameters;
    sizes.rows += rows;
    sizes.largest = std::max(sizes.largest, parameters);
  }
  return sizes;
}

// The plain copy that the product of an int8 weight reads, made for its call.
uint64_t PlainWeightBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  return Int8SizesOf(config, facts).largest * ComputeBytes(config);
}

// Weights that never change. A LoRA's base is kept in the compute dtype, or as int8 with a scale of
// that type for each row.
uint64_t FrozenBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const uint64_t all = kFloatBytes * facts.transformer_parameters;
  if (!IsLora(config)) return all - kFloatBytes * facts.trained_parameters;
  const uint64_t compute = ComputeBytes(config);
  const uint64_t exact = std::min(ExactParameters(facts), facts.transformer_parameters);
  const Int8Sizes int8 = Int8SizesOf(config, facts);
  return compute * facts.transformer_parameters + (kFloatBytes - compute) * exact -
         (compute - 1) * int8.parameters + compute * int8.rows;
}

// The reference of a LoRA is the model with its adapter switched off.
bool CopiesReference(const v1::RunConfig& config) {
  if (run::MovesReference(config)) return true;
  return !IsLora(config) && run::ReadsReference(config.method());
}

// Ranks that share AdamW's moments; 1: each has all of them.
uint64_t PiecesOf(const v1::RunConfig& config) {
  const bool whole = config::MemoryOf(config.model()).whole_optimizer || IsLora(config);
  return whole ? 1 : std::max(1u, config.learner().ranks());
}

// No rank holds a whole gradient, but its piece of the sum and some buckets.
bool ShardsGradients(const v1::RunConfig& config) {
  return config::MemoryOf(config.model()).shard_gradients && PiecesOf(config) > 1;
}

uint64_t GradientBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const uint64_t trained = kFloatBytes * facts.trained_parameters;
  if (!ShardsGradients(config)) return trained;
  uint64_t largest = 0;
  if (facts.architecture != nullptr) {
    for (const auto& [name, shape] : facts.architecture->shapes()) {
      largest = std::max(largest, BytesOf(shape, kFloatBytes));
    }
  }
  return trained / PiecesOf(config) + parallel::ShardedGradient::BytesOnTheWay(largest);
}

bool OffloadsWeights(const v1::RunConfig& config) {
  return config::MemoryOf(config.model()).offload_weights && OnGpu(config);
}

// A LoRA's trained weights stay on the GPU.
bool OffloadsTrained(const v1::RunConfig& config) {
  return OffloadsWeights(config) && !IsLora(config);
}

// "blocks.3" of "blocks.3.attn.to_q.weight"; empty where no part of the name is a number.
std::string BlockOf(const std::string& name) {
  std::vector<std::string> parts;
  for (const absl::string_view part : absl::StrSplit(name, '.')) {
    parts.emplace_back(part);
    if (part.find_first_not_of("0123456789") == absl::string_view::npos) {
      return absl::StrJoin(parts, ".");
    }
  }
  return "";
}

// Bytes that a GPU holds of weights in host memory: the two places of blocks, and what is in no
// block; with those of a block in bfloat16 where they come so.
uint64_t WeightsComingBytes(const v1::RunConfig& config, const run::ModelFacts& facts,
                            bool training) {
  if (facts.architecture == nullptr) return 0;
  const bool lora = IsLora(config);
  const std::set<std::string> in_int8 = Int8NamesOf(config, facts);
  std::map<std::string, uint64_t> blocks;
  for (const auto& [name, shape] : facts.architecture->shapes()) {
    if (!lora && facts.architecture->buffers().contains(name)) continue;
    const bool exact = !lora || facts.architecture->float32().contains(name);
    const uint64_t bytes = in_int8.contains(name) ? 1 : exact ? kFloatBytes : ComputeBytes(config);
    blocks[BlockOf(name)] += BytesOf(shape, bytes);
  }
  const uint64_t rest = std::exchange(blocks[""], 0);
  uint64_t largest = 0;
  for (const auto& [block, bytes] : blocks) largest = std::max(largest, bytes);
  const bool narrow = !lora && training && IsMixedPrecision(config);
  return rest + 2 * largest + (narrow ? largest / 2 : 0);
}

// Chunks of the frozen part that are held for workers, and not read from where the bytes are
// anyway: what a GPU has, and the model's files have in another type
// (services/weights/tensor_place.h).
uint64_t FrozenChunkBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  if (!OnGpu(config)) return 0;
  const uint64_t decoder = kFloatBytes * facts.decoder_parameters;
  if (OffloadsWeights(config) && IsLora(config)) return decoder;
  uint64_t bytes = decoder + FrozenBytes(config, facts);
  if (!IsLora(config) || facts.architecture == nullptr) return bytes;
  const io::DType compute = IsMixedPrecision(config) ? io::DType::kBF16 : io::DType::kF32;
  const std::set<std::string> int8 = Int8NamesOf(config, facts);
  for (const auto& [name, shape] : facts.architecture->shapes()) {
    const auto stored = facts.stored_types.find(name);
    const io::DType kept = facts.architecture->float32().contains(name) ? io::DType::kF32 : compute;
    if (stored == facts.stored_types.end() || int8.contains(name) || stored->second != kept)
      continue;
    bytes -= BytesOf(shape, io::WidthOf(kept));
  }
  return bytes;
}

bool KeepsOld(const v1::RunConfig& config) {
  return run::OldPolicyOf(config.method()) != model::OldPolicy::kNone;
}

}  // namespace

uint64_t PeakOf(const std::vector<MemoryItem>& items) {
  uint64_t always = 0;
  uint64_t start = 0;
  uint64_t training = 0;
  for (const MemoryItem& item : items) {
    (item.held == MemoryItem::Held::kAlways    ? always
     : item.held == MemoryItem::Held::kAtStart ? start
                                               : training) += item.bytes;
  }
  return always + std::max(start, training);
}

uint64_t DevicePeakOf(std::vector<MemoryItem> items) {
  std::erase_if(items, [](const MemoryItem& item) { return item.on_host; });
  return PeakOf(items);
}

namespace {

// Rank 0 leads: it serves the weights to workers.
std::vector<MemoryItem> MemoryOfRank(const v1::RunConfig& config, const run::ModelFacts& facts,
                                     bool leads) {
  using Held = MemoryItem::Held;
  const uint64_t trained = kFloatBytes * facts.trained_parameters;
  const uint64_t frozen = FrozenBytes(config, facts);
  const uint64_t decoder = kFloatBytes * facts.decoder_parameters;
  const uint64_t average = config.ema().enabled() ? trained : 0;
  const uint64_t moments = 2 * trained / PiecesOf(config);
  // Recomputed blocks give theirs back one after another.
  const config::MemoryParts memory = config::MemoryOf(config.model());
  const uint64_t casts = IsMixedPrecision(config) && !memory.recompute ? trained / 2 : 0;
  // An exported graph may have operators that no dry run follows.
  const uint64_t activations = ActivationBytes(config, facts);
  // A rank's piece of the sum of gradients, which comes when activations have gone.
  const uint64_t sum =
      PiecesOf(config) > 1 && !ShardsGradients(config) ? trained / PiecesOf(config) : 0;
  const bool unknown = activations == 0 && facts.architecture != nullptr;
  // A step of one update needs nothing undone, but for weights that have no other place to come to.
  const bool undoes = config::UpdatesPerStep(config) > 1;
  const bool offloads = OffloadsTrained(config);
  // Torch rounds pinned memory up to a power of two, unless its allocator is told otherwise.
  const uint64_t placed = offloads ? std::bit_ceil(trained) : trained;
  // Ranks of this machine keep what they share once.
  const uint64_t sharers = run::SharesWeights(config) ? config.learner().ranks() : 1;
  const uint64_t own = sharers > 1 ? trained / sharers : placed;
  const bool in_place = ShardsGradients(config) && !offloads;
  const uint64_t undo = undoes ? trained + moments + average : in_place ? trained : 0;
  const bool encodes_on_host = !config.model().encoder_device().starts_with("cuda");
  constexpr bool kOnHost = true;
  return {
      {"trained weights", own, Held::kAlways, offloads},
      {"trained weights in bfloat16", offloads && IsMixedPrecision(config) ? own / 2 : 0,
       Held::kInTraining, kOnHost},
      {"weights of two blocks",
       OffloadsWeights(config) ? WeightsComingBytes(config, facts, /*training=*/true) : 0},
      {"next weights", offloads && ShardsGradients(config) ? own : 0, Held::kInTraining, kOnHost},
      {"frozen weights", frozen, Held::kAlways, OffloadsWeights(config) && IsLora(config)},
      {"reference policy", CopiesReference(config) ? placed : 0, Held::kAlways, offloads},
      {"gradients", GradientBytes(config, facts), Held::kInTraining},
      // The first pass, and every one of a deterministic run.
      {"gradients in host memory", ShardsGradients(config) ? trained : 0, Held::kInTraining,
       kOnHost},
      {"AdamW moments", moments, Held::kInTraining, memory.offload_optimizer},
      {"running average", average / sharers, Held::kAlways, memory.offload_average},
      {"next average", sharers > 1 ? average / sharers : 0, Held::kInTraining, kOnHost},
      {"old policy", KeepsOld(config) ? placed : 0, Held::kAlways, offloads},
      {"copy to undo a step", undo, Held::kInTraining, kOnHost},
      {"published snapshots",
       leads ? config.services().snapshots_kept() * trained + FrozenChunkBytes(config, facts) : 0,
       Held::kInTraining, kOnHost},
      {"text encoders", facts.text_encoder_bytes,
       run::EncodesBesideTraining(config) ? Held::kAlways : Held::kAtStart, encodes_on_host},
      {"decoder of images", decoder},
      {"casts of weights", casts + PlainWeightBytes(config, facts), Held::kInTraining},
      {unknown ? "activations, unknown" : "activations, about", activations, Held::kInTraining},
      {"summed gradient, beyond activations", sum - std::min(sum, casts + activations),
       Held::kInTraining},
      {"evaluated weights", leads && config.eval().every() > 0 ? trained : 0, Held::kInTraining,
       kOnHost},
      {"experience", run::SinkBytesNeeded(config, facts.latent_shape), Held::kInTraining, kOnHost}};
}

}  // namespace

std::vector<MemoryItem> LearnerMemory(const v1::RunConfig& config, const run::ModelFacts& facts) {
  return MemoryOfRank(config, facts, /*leads=*/true);
}

std::vector<MemoryItem> MemberMemory(const v1::RunConfig& config, const run::ModelFacts& facts) {
  return MemoryOfRank(config, facts, /*leads=*/false);
}

std::vector<MemoryItem> WorkerMemory(const v1::RunConfig& whole, const run::ModelFacts& facts,
                                     bool borrows) {
  const v1::RunConfig config = config::AsWorkersCompute(whole);
  const bool offloads = OffloadsWeights(config);
  const uint64_t trained = kFloatBytes * facts.trained_parameters;
  const uint64_t frozen = FrozenBytes(config, facts);
  const uint64_t decoder = kFloatBytes * facts.decoder_parameters;
  // Frozen weights on the CPU are passed on from where they are, unless they came in another type.
  const uint64_t came = FrozenBytes(whole, facts);
  const bool in_place = came == frozen && (!OnGpu(config) || (offloads && IsLora(config)));
  const uint64_t passed_on = (in_place ? 0 : came) + (OnGpu(config) ? decoder : 0);
  const bool merges = IsLora(config) && config.model().lora().merge_for_rollouts() && !offloads;
  const uint64_t sampling = SamplingBytes(config, facts) + PlainWeightBytes(config, facts);
  const uint64_t decoding = DecodingBytes(config, facts);
  const uint64_t evaluation = EvaluationBytes(config, facts);
  constexpr MemoryItem::Held kAlways = MemoryItem::Held::kAlways;
  return {{"trained weights", trained, kAlways, offloads && !IsLora(config)},
          {"frozen weights", borrows ? 0 : frozen, kAlways, offloads && IsLora(config)},
          {"weights of two blocks",
           offloads ? WeightsComingBytes(config, facts, /*training=*/false) : 0},
          {"merged weights", merges ? facts.adapted_parameters * ComputeBytes(config) : 0},
          {"decoder of images", decoder},
          {"sampling, about", sampling},
          {"decoding of latents", decoding},
          {"evaluation, beyond sampling", evaluation - std::min(evaluation, sampling + decoding)},
          {"evaluated weights", EvaluatesAverage(config) ? trained : 0, kAlways,
           /*on_host=*/true},
          // One snapshot to relay, the trained part of the next one, and copies to go back to.
          {"snapshots", 4 * trained + passed_on, kAlways, /*on_host=*/true}};
}

uint32_t ProcessesOf(const v1::RunConfig& config) {
  return config.learner().ranks() + config.services().rollout_workers() +
         run::RewardServersOf(config) + config::ReplayBuffersOf(config);
}

uint64_t MemoryLimitsOf(const v1::RunConfig& config, uint64_t memory) {
  const v1::ServiceConfig& services = config.services();
  const uint64_t processes = ProcessesOf(config);
  const auto limit = [&](const MemoryShare& share) { return LimitOf(share, memory / processes); };
  const uint64_t rewards = run::RewardServersOf(config);
  const uint64_t ranks = config.learner().ranks();
  return processes * (kProcessBytes + limit(kGrpcShare)) +
         config::ReplayBuffersOf(config) * limit(kOffersShare) + rewards * limit(kMediaShare) +
         services.rollout_workers() * limit(kConditioningShare) +
         ranks * (services.sink_bytes_max() + limit(kPromptsShare)) +
         std::min(services.sink_bytes_max(), limit(kBacklogShare));
}

uint64_t EvaluationDiskBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const uint64_t every = config.eval().every();
  if (every == 0) return 0;
  const model::PictureSize size = model::DecodedSize(
      facts.factors, facts.evaluated_shape.empty() ? facts.latent_shape : facts.evaluated_shape);
  const uint64_t steps = config.run().steps();
  const uint64_t evaluations = 1 + (steps + every - 1) / every;  // The last step has one.
  const uint64_t shown = std::min(config.eval().images(), config.eval().grid_images());
  const uint64_t about = shown * io::PictureBytesAbout(size.width, size.height, size.frames) +
                         io::SheetBytesAbout(size.width, size.height, static_cast<int64_t>(shown));
  const uint64_t drawn_for_pages =
      io::SpriteBytesMax(io::SpriteSize::kSmall) + io::SpriteBytesMax(io::SpriteSize::kMiddle);
  return evaluations * (about + about / 2 + drawn_for_pages);  // Busy pictures.
}

uint64_t EncodedPromptBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  if (config.prompts().cache().empty()) return 0;
  std::set<std::string> texts = {config.sampling().negative_prompt()};
  for (const auto& [path, split] : {std::pair{config.prompts().train(), run::PromptSplit::kTrain},
                                    {config.prompts().eval(), run::PromptSplit::kHeldOut}}) {
    const auto read = run::ReadPrompts(path, split);
    if (!read.ok()) continue;  // CheckRun says what is wrong with the file.
    for (const v1::Prompt& prompt : *read) texts.insert(prompt.text());
  }
  std::erase_if(
      texts, [&](const std::string& text) { return io::IsStored(config.prompts().cache(), text); });
  return texts.size() * facts.stored_prompt_bytes;
}

std::vector<DiskShare> DiskSharesOf(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const uint64_t trained = kFloatBytes * facts.trained_parameters;
  // Trained and averaged weights; an adapter is written in two formats.
  const uint64_t published =
      IsLora(config) ? 4 * trained : 2 * kFloatBytes * facts.transformer_parameters;
  const uint64_t groups = std::max(1U, config.batch().groups());
  const uint64_t conditioning = facts.conditioning_bytes;
  const v1::AdaptationConfig& adaptation = config.adaptation();
  uint64_t buffer = 0;  // Nothing is offered where nothing is drawn.
  if (config::KeepsSuccesses(config) || adaptation.enabled()) {
    buffer = config.replay().capacity() *
             run::EntryBytes(config.sampling(), facts.latent_shape, conditioning);
  }
  if (adaptation.enabled()) {
    buffer += groups * conditioning;
    buffer += groups * adaptation.recent_steps() *
              (run::GroupBytesMax(config, facts.latent_shape) + conditioning);
  }
  const uint64_t best = !config.checkpoint().best().empty() && config.eval().every() > 0 ? 1 : 0;
  const uint64_t checkpoint =
      kFloatBytes * facts.trained_parameters * (config.ema().enabled() ? 4 : 3);
  const uint64_t checkpoints = (config.checkpoint().keep() + 1 + best) * checkpoint;
  const uint64_t records = io::kReportBytesMax + config.run().steps() * kStepRecordBytes;
  const uint64_t prompts = EncodedPromptBytes(config, facts);
  const auto copies = config::ParseCopyTarget(config.checkpoint().copy_to());
  const bool copied = copies.ok() && !copies->directory.empty();
  const std::filesystem::path run =
      std::filesystem::path(config.run().directory()) / config.run().name();
  std::vector<DiskShare> shares = {
      {"run.directory", run, checkpoints + published + records + EvaluationDiskBytes(config, facts),
       checkpoint},
      {"run.directory", run / "replay", 2 * buffer, 0},
      {"prompts.cache", config.prompts().cache(), prompts, prompts},
      {"checkpoint.copy_to", copied ? copies->directory : run, copied ? checkpoints : 0,
       copied ? checkpoint : 0}};
  std::erase_if(shares, [](const DiskShare& share) { return share.bytes == 0; });
  return shares;
}

uint64_t DiskBytesNeeded(const v1::RunConfig& config, const run::ModelFacts& facts) {
  uint64_t bytes = 0;
  for (const DiskShare& share : DiskSharesOf(config, facts)) bytes += share.bytes;
  return bytes;
}

std::string MemoryText(const v1::RunConfig& config, const run::ModelFacts& facts) {
  std::string text = absl::StrFormat("%-22s %d parameters, %d trained\n", "the transformer",
                                     facts.transformer_parameters, facts.trained_parameters);
  std::string apart;
  for (const DiskShare& share : DiskSharesOf(config, facts)) {
    if (share.key == "run.directory") continue;
    absl::StrAppend(&apart, ", ", BytesText(share.bytes), " for ",
                    share.key == "prompts.cache" ? "prompts to encode (" : "copies (",
                    share.place.string(), ")");
  }
  const std::vector<MemoryItem> items = LearnerMemory(config, facts);
  for (const MemoryItem& item : items) {
    if (item.bytes == 0 && !item.what.ends_with("unknown")) continue;
    absl::StrAppendFormat(&text, "  %-35s %10s%s\n", item.what, BytesText(item.bytes),
                          item.on_host && OnGpu(config) ? ", on the host" : "");
  }
  return absl::StrCat(
      text,
      absl::StrFormat("%-22s %s; %d trained steps in a backward pass\n", "the learner",
                      BytesText(PeakOf(items)), run::RowsOfPass(config)),
      absl::StrFormat("%-22s %s of the %s allowed (services.sink_bytes_max)\n", "for experience",
                      BytesText(run::SinkBytesNeeded(config, facts.latent_shape)),
                      BytesText(config.services().sink_bytes_max())),
      absl::StrFormat("%-22s %s, of it %s for pictures of evaluations%s\n", "on the disk, at most",
                      BytesText(DiskBytesNeeded(config, facts)),
                      BytesText(EvaluationDiskBytes(config, facts)), apart));
}

}  // namespace oxbow::cli
