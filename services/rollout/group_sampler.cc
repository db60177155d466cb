#include "services/rollout/group_sampler.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <map>

#include "core/flow/sampler.h"
#include "core/model/picture_sampler.h"

namespace oxbow::rollout {
namespace {

// One row of a denoising batch: which sample of which task.
struct Row {
  size_t task;
  uint32_t sample;
};

std::vector<flow::NoiseKey> KeysOf(const RunSpec& spec, const std::vector<GroupTask>& tasks,
                                   const std::vector<Row>& rows) {
  std::vector<flow::NoiseKey> keys;
  keys.reserve(rows.size());
  for (const Row& row : rows) {
    keys.push_back(
        {.run_seed = spec.run_seed, .group = tasks[row.task].group.value, .sample = row.sample});
  }
  return keys;
}

model::Conditioning ConditioningOf(const std::vector<GroupTask>& tasks,
                                   const std::vector<Row>& rows) {
  std::vector<at::Tensor> tokens, pooled;
  for (const Row& row : rows) {
    tokens.push_back(tasks[row.task].conditioning.tokens);
    pooled.push_back(tasks[row.task].conditioning.pooled);
  }
  return {at::cat(tokens), at::cat(pooled)};
}

flow::VelocityFunction VelocityOf(const model::VelocityModel& model,
                                  model::Conditioning conditioning) {
  return [&model, conditioning = std::move(conditioning)](const at::Tensor& x,
                                                          const at::Tensor& sigma) {
    return model.Velocity(x, sigma, conditioning);
  };
}

// What row `index` of the paths says of one sample; `latents` of them are kept (0: none).
rl::Sample SampleFrom(const flow::SamplingSpec& spec, const flow::Paths& paths, int64_t index,
                      uint32_t sample, PolicyVersion version, int64_t latents) {
  const auto steps = static_cast<size_t>(spec.steps());
  rl::Sample result;
  result.index = sample;
  result.first_latent = paths.first_step;
  if (latents > 0)
    result.latents = paths.latents.narrow(0, 0, latents).select(1, index).contiguous();
  result.log_prob.assign(steps, 0.0f);
  result.sde.assign(steps, false);
  result.behaviour_version.assign(steps, version.value);
  for (size_t i = static_cast<size_t>(paths.first_step); i < steps; ++i) {
    if (!spec.sde[i]) continue;
    result.sde[i] = true;
    result.log_prob[i] =
        paths.log_prob[static_cast<int64_t>(i) - paths.first_step][index].item<float>();
  }
  return result;
}

std::vector<reward::Picture> PicturesOf(const model::ImageDecoder& decoder,
                                        const at::Tensor& latents) {
  const at::Tensor images = decoder.Decode(latents);  // [B, height, width, channels]
  std::vector<reward::Picture> pictures;
  for (int64_t i = 0; i < images.size(0); ++i) {
    pictures.push_back({.width = static_cast<uint32_t>(images.size(2)),
                        .height = static_cast<uint32_t>(images.size(1)),
                        .channels = static_cast<uint32_t>(images.size(3)),
                        .pixels = model::PixelsOf(images, i)});
  }
  return pictures;
}

// All fresh samples of all tasks as one batch.
void SampleFresh(const RunSpec& spec, const model::VelocityModel& model, PolicyVersion version,
                 const model::ImageDecoder& decoder, const std::vector<GroupTask>& tasks,
                 std::vector<SampledGroup>& groups) {
  std::vector<Row> rows;
  for (size_t task = 0; task < tasks.size(); ++task) {
    const uint32_t fresh = tasks[task].group_size - (tasks[task].head.has_value() ? 1 : 0);
    for (uint32_t sample = 0; sample < fresh; ++sample) rows.push_back({task, sample});
  }
  if (rows.empty()) return;
  const flow::Paths paths =
      flow::SamplePaths(spec.sampling, KeysOf(spec, tasks, rows), spec.latent_shape, spec.storage,
                        VelocityOf(model, ConditioningOf(tasks, rows)));
  std::vector<reward::Picture> pictures = PicturesOf(decoder, paths.latents[spec.sampling.steps()]);
  for (size_t i = 0; i < rows.size(); ++i) {
    SampledGroup& group = groups[rows[i].task];
    group.samples.push_back(SampleFrom(spec.sampling, paths, static_cast<int64_t>(i),
                                       rows[i].sample, version, spec.latents_sent));
    group.pictures.push_back(std::move(pictures[i]));
  }
}

// The tails of all heads that stop at the same step, as one batch.
void SampleTails(const RunSpec& spec, const model::VelocityModel& model, PolicyVersion version,
                 const model::ImageDecoder& decoder, const std::vector<GroupTask>& tasks,
                 int kept_steps, const std::vector<Row>& rows, std::vector<SampledGroup>& groups) {
  flow::SamplingSpec tail = spec.sampling;
  if (!spec.sde_tail) tail.sde.assign(tail.sde.size(), false);
  std::vector<at::Tensor> starts;
  for (const Row& row : rows) starts.push_back(tasks[row.task].head->latent);
  const flow::Paths paths =
      flow::ContinuePaths(tail, KeysOf(spec, tasks, rows), at::stack(starts), kept_steps,
                          spec.storage, VelocityOf(model, ConditioningOf(tasks, rows)));
  std::vector<reward::Picture> pictures =
      PicturesOf(decoder, paths.latents[paths.latents.size(0) - 1]);
  const int64_t kept_latents = spec.sde_tail ? std::max(0, spec.latents_sent - kept_steps) : 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const ReplayedHead& head = *tasks[rows[i].task].head;
    rl::Sample sample = SampleFrom(tail, paths, static_cast<int64_t>(i), rows[i].sample, version,
                                   kept_latents > 1 ? kept_latents : 0);
    sample.replayed = true;
    sample.entry_id = head.entry;
    sample.kept_steps = head.kept_steps;
    sample.stored_reward = head.stored_reward;
    groups[rows[i].task].samples.push_back(std::move(sample));
    groups[rows[i].task].pictures.push_back(std::move(pictures[i]));
  }
}

}  // namespace

std::vector<SampledGroup> SampleGroups(const RunSpec& spec, const model::VelocityModel& model,
                                       PolicyVersion version, const model::ImageDecoder& decoder,
                                       const std::vector<GroupTask>& tasks) {
  const c10::InferenceMode no_gradients;
  std::vector<SampledGroup> groups(tasks.size());
  SampleFresh(spec, model, version, decoder, tasks, groups);
  std::map<int, std::vector<Row>> tails;  // By kept steps.
  for (size_t task = 0; task < tasks.size(); ++task) {
    if (!tasks[task].head.has_value()) continue;
    tails[tasks[task].head->kept_steps].push_back({task, tasks[task].group_size - 1});
  }
  for (const auto& [kept_steps, rows] : tails) {
    SampleTails(spec, model, version, decoder, tasks, kept_steps, rows, groups);
  }
  return groups;
}

}  // namespace oxbow::rollout
