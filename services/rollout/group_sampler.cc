// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/group_sampler.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "core/flow/sampler.h"
#include "core/flow/window.h"
#include "core/reward/likeness.h"

namespace oxbow::rollout {
namespace {

// One row of a denoising batch: a sample of a task.
struct Row {
  size_t task;
  uint32_t sample;
};

// Members without a head, which come first; the others go on from it.
uint32_t FreshOf(const RunSpec& spec, const GroupTask& task) {
  return task.group_size - (task.head.has_value() ? std::min(spec.branches, task.group_size) : 0);
}

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

// x_0 of every row: that of its tree's first member. With a shared start all rows of a group use
// the first member's x_0. This does not change the first member, because steps draw their own
// noise.
at::Tensor StartsOf(const RunSpec& spec, std::vector<flow::NoiseKey> keys) {
  for (flow::NoiseKey& key : keys) {
    key.sample = spec.shared_start ? 0 : spec.sampling.splits.FirstLeaf(key.sample, -1);
  }
  return flow::DrawStarts(keys, spec.latent_shape);
}

model::Conditioning ConditioningOf(const std::vector<GroupTask>& tasks,
                                   const std::vector<Row>& rows) {
  std::vector<model::Conditioning> conditionings;
  for (const Row& row : rows) conditionings.push_back(tasks[row.task].conditioning);
  return model::ConcatRows(conditionings);
}

// Paths are drawn where the prompts are, which a worker has put where the weights are: then nothing
// but noise travels there between two steps.
at::Device DeviceOf(const GroupTask& task) {
  OXBOW_CHECK(!task.conditioning.empty()) << "a group without conditioning";
  return task.conditioning.begin()->second.device();
}

// Networks one step after the other, and the versions that took the steps.
class StepByStep {
 public:
  explicit StepByStep(const NetworkOfStep& network) : network_(network) {}

  const model::VelocityModel& Next() {
    const VersionedNetwork next = network_();
    versions_.push_back(next.version.value);
    return next.model;
  }

  // The versions of all `steps` steps of samples whose first one taken was `first_step`. Those
  // before it, and those that a compressed path leaves out, have the version of the nearest step
  // taken.
  std::vector<uint64_t> Versions(size_t steps, int first_step) {
    if (versions_.empty()) versions_.push_back(network_().version.value);  // A tail of no steps.
    std::vector<uint64_t> all(steps, versions_.back());
    for (size_t i = 0; i < steps; ++i) {
      const auto step = static_cast<int64_t>(i) - first_step;
      const auto last = static_cast<int64_t>(versions_.size()) - 1;
      all[i] = versions_[static_cast<size_t>(std::clamp<int64_t>(step, 0, last))];
    }
    return all;
  }

 private:
  const NetworkOfStep& network_;
  std::vector<uint64_t> versions_;
};

flow::VelocityFunction VelocityOf(StepByStep& networks, model::Conditioning conditioning) {
  return [&networks, conditioning = std::move(conditioning)](const at::Tensor& x,
                                                             const at::Tensor& sigma) {
    return networks.Next().Velocity(x, sigma, conditioning);
  };
}

// The same for some rows of the batch, the nodes of trees: their conditioning is selected when they
// change, not at every step.
flow::NodeVelocityFunction NodeVelocityOf(StepByStep& networks, model::Conditioning conditioning) {
  return [&networks, all = std::move(conditioning), chosen = model::Conditioning(),
          chosen_rows = std::vector<int64_t>()](const at::Tensor& x, const at::Tensor& sigma,
                                                const std::vector<int64_t>& rows) mutable {
    if (rows != chosen_rows) {
      chosen = model::SelectRows(all, at::tensor(rows, at::kLong));
      chosen_rows = rows;
    }
    return networks.Next().Velocity(x, sigma, chosen);
  };
}

// Makes a sample from row `index` of the paths, with the latents in `span`. A compressed path ends
// before x_T in its own count: its last latent is x_T, and those that it never visited are in no
// span.
rl::Trajectory SampleFrom(const flow::SamplingSpec& spec, const flow::Paths& paths, int64_t index,
                          uint32_t sample, StepByStep& networks, flow::LatentSpan span) {
  const auto steps = static_cast<size_t>(spec.steps());
  rl::Trajectory result;
  result.index = sample;
  result.first_latent = span.first;
  if (span.count > 0) {
    const int64_t last = paths.latents.size(0) - 1;
    const int64_t first = span.first == spec.steps() ? last : span.first - paths.first_step;
    result.latents = paths.latents.narrow(0, first, span.count).select(1, index).contiguous();
  }
  result.log_prob.assign(steps, 0.0f);
  result.sde.assign(steps, false);
  result.behaviour_version = networks.Versions(steps, paths.first_step);
  for (size_t i = static_cast<size_t>(paths.first_step); i < steps; ++i) {
    if (!spec.sde[i]) continue;
    result.sde[i] = true;
    result.log_prob[i] =
        paths.log_prob[static_cast<int64_t>(i) - paths.first_step][index].item<float>();
  }
  return result;
}

// Samples all fresh members of tasks with the same window as one batch.
void SampleFresh(const RunSpec& spec, const flow::SamplingSpec& sampling,
                 const NetworkOfStep& network, const model::ImageDecoder& decoder,
                 const std::vector<GroupTask>& tasks, const std::vector<size_t>& chosen,
                 std::vector<SampledGroup>& groups) {
  std::vector<Row> rows;
  for (const size_t task : chosen) {
    const uint32_t fresh = FreshOf(spec, tasks[task]);
    for (uint32_t sample = 0; sample < fresh; ++sample) rows.push_back({task, sample});
  }
  if (rows.empty()) return;
  const std::vector<flow::NoiseKey> keys = KeysOf(spec, tasks, rows);
  const at::Tensor starts = StartsOf(spec, keys).to(DeviceOf(tasks[chosen[0]]));
  model::Conditioning conditioning = ConditioningOf(tasks, rows);
  StepByStep networks(network);
  const flow::Paths paths =
      sampling.splits.empty()
          ? flow::ContinuePaths(sampling, keys, starts, /*first_step=*/0, spec.storage,
                                VelocityOf(networks, std::move(conditioning)))
          : flow::ContinueTrees(sampling, keys, starts, /*first_step=*/0, spec.storage,
                                NodeVelocityOf(networks, std::move(conditioning)));
  std::vector<std::vector<Image8>> media =
      model::DecodeFrames(decoder, paths.latents[paths.latents.size(0) - 1]);
  const flow::LatentSpan span = flow::SentSpan(spec.sent, sampling.sde);
  for (size_t i = 0; i < rows.size(); ++i) {
    SampledGroup& group = groups[rows[i].task];
    group.trajectories.push_back(
        SampleFrom(sampling, paths, static_cast<int64_t>(i), rows[i].sample, networks, span));
    group.media.push_back(std::move(media[i]));
  }
}

// The latents of a tail from x_{kept_steps}, where its head ends, to the last one that is sent;
// empty if that is none.
flow::LatentSpan TailSpan(flow::SentLatents sent, const flow::SamplingSpec& tail, int kept_steps) {
  std::vector<bool> sde = tail.sde;
  std::fill(sde.begin(), sde.begin() + kept_steps, false);
  const bool to_the_end = sent == flow::SentLatents::kToTheEnd;
  const flow::LatentSpan span = to_the_end ? flow::SentSpan(sent, sde) : flow::SpanOf(sde);
  if (span.count == 0) return {.first = kept_steps, .count = 0};
  return {.first = kept_steps, .count = span.end() - kept_steps};
}

// Samples, as one batch, the tails of heads that end at the same step and have the same window.
void SampleTails(const RunSpec& spec, flow::SamplingSpec tail, const NetworkOfStep& network,
                 const model::ImageDecoder& decoder, const std::vector<GroupTask>& tasks,
                 int kept_steps, const std::vector<Row>& rows, std::vector<SampledGroup>& groups) {
  if (!spec.sde_tail) tail.sde.assign(tail.sde.size(), false);
  std::vector<at::Tensor> starts;
  for (const Row& row : rows) starts.push_back(tasks[row.task].head->latents[0]);
  StepByStep networks(network);
  const flow::Paths paths = flow::ContinuePaths(
      tail, KeysOf(spec, tasks, rows), at::stack(starts).to(DeviceOf(tasks[rows[0].task])),
      kept_steps, spec.storage, VelocityOf(networks, ConditioningOf(tasks, rows)));
  std::vector<std::vector<Image8>> media =
      model::DecodeFrames(decoder, paths.latents[paths.latents.size(0) - 1]);
  const flow::LatentSpan span = TailSpan(spec.sent, tail, kept_steps);
  for (size_t i = 0; i < rows.size(); ++i) {
    const rl::Trajectory& head = *tasks[rows[i].task].head;
    rl::Trajectory sample =
        SampleFrom(tail, paths, static_cast<int64_t>(i), rows[i].sample, networks, span);
    sample.replayed = true;
    sample.entry_id = head.entry_id;
    sample.kept_steps = head.kept_steps;
    sample.stored_reward = head.stored_reward;
    groups[rows[i].task].trajectories.push_back(std::move(sample));
    groups[rows[i].task].media.push_back(std::move(media[i]));
  }
}

}  // namespace

void CompareSamples(double radius, SampledGroup& group) {
  const std::vector<reward::Likeness> likeness = reward::LikenessOf(group.media, radius);
  for (size_t i = 0; i < likeness.size(); ++i) {
    group.trajectories[i].group_distance = likeness[i].mean_distance;
    group.trajectories[i].duplicate_share = likeness[i].duplicate_share;
  }
}

std::vector<SampledGroup> SampleGroups(const RunSpec& spec, const NetworkOfStep& network,
                                       const model::ImageDecoder& decoder,
                                       const std::vector<GroupTask>& tasks) {
  const c10::InferenceMode no_gradients;
  std::vector<SampledGroup> groups(tasks.size());
  std::map<std::vector<bool>, std::vector<size_t>> windows;
  for (size_t task = 0; task < tasks.size(); ++task) {
    windows[tasks[task].sde.empty() ? spec.sampling.sde : tasks[task].sde].push_back(task);
  }
  for (const auto& [window, chosen] : windows) {
    flow::SamplingSpec sampling = spec.sampling;
    sampling.sde = window;
    SampleFresh(spec, sampling, network, decoder, tasks, chosen, groups);
    std::map<int, std::vector<Row>> tails;  // By kept steps.
    for (const size_t task : chosen) {
      if (!tasks[task].head.has_value()) continue;
      for (uint32_t sample = FreshOf(spec, tasks[task]); sample < tasks[task].group_size;
           ++sample) {
        tails[tasks[task].head->kept_steps].push_back({task, sample});
      }
    }
    for (const auto& [kept_steps, rows] : tails) {
      SampleTails(spec, sampling, network, decoder, tasks, kept_steps, rows, groups);
    }
  }
  return groups;
}

}  // namespace oxbow::rollout
