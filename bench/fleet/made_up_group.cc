// SPDX-License-Identifier: Apache-2.0
#include "bench/fleet/made_up_group.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace oxbow::bench {
namespace {

constexpr uint64_t kScheduleId = 7;
constexpr uint64_t kSmallSamples = 2;
constexpr uint64_t kSmallLatents = 2;

uint64_t OneLatent(const Load& load) {
  return (load.small_kib << 10) / (kSmallSamples * kSmallLatents);
}

uint64_t SamplesOf(const Load& load, uint64_t group) {
  return IsLarge(load, group) ? kGroupSize : kSmallSamples;
}

uint64_t LatentsOf(const Load& load, uint64_t group) {
  return IsLarge(load, group) ? (load.group_kib << 10) / kGroupSize / OneLatent(load)
                              : kSmallLatents;
}

int64_t StepsOf(const Load& load) {
  return static_cast<int64_t>(LatentsOf(load, 0)) - 1;  // Group 0 is large, if any is.
}

// Four numbers of 16 bits that are finite in bfloat16, other ones for each sample.
uint64_t WordOf(uint64_t group, uint32_t sample) {
  return ((group * kGroupSize + sample + 1) * 0x9e3779b97f4a7c15u) & 0x3fff3fff3fff3fffu;
}

std::string Pattern(uint64_t word, uint64_t bytes) {
  std::string text(bytes, '\0');
  std::memcpy(text.data(), &word, sizeof word);
  for (size_t done = sizeof word; done < bytes; done *= 2) {
    std::memcpy(text.data() + done, text.data(), std::min(done, bytes - done));
  }
  return text;
}

bool HasPattern(const std::string& text, uint64_t word) {
  return text.size() >= sizeof word && std::memcmp(text.data(), &word, sizeof word) == 0 &&
         std::memcmp(text.data(), text.data() + sizeof word, text.size() - sizeof word) == 0;
}

uint8_t GreyOf(uint64_t group, uint32_t sample) {
  return static_cast<uint8_t>((group * 31 + sample * 7) % 251);
}

}  // namespace

bool IsLarge(const Load& load, uint64_t group) {
  return load.large_every > 0 && group % load.large_every == 0;
}

uint64_t LatentBytes(const Load& load, uint64_t group) {
  return SamplesOf(load, group) * LatentsOf(load, group) * OneLatent(load);
}

learner::GroupRules RulesOf(const Load& load) {
  return {.latent_shape = {1, 1, static_cast<int64_t>(OneLatent(load) / 2)},
          .storage = v1::DTYPE_BF16,
          .schedule_id = kScheduleId,
          .sde = std::vector<bool>(static_cast<size_t>(StepsOf(load)), true),
          .group_size = kGroupSize};
}

std::vector<bool> WindowOf(const Load& load, uint64_t group) {
  std::vector<bool> window(static_cast<size_t>(StepsOf(load)), IsLarge(load, group));
  window[0] = true;
  return window;
}

uint64_t SinkBytes(const Load& load) {
  const uint64_t share = load.groups / static_cast<uint64_t>(load.ranks);
  uint64_t most = 0;
  for (uint64_t first = 0; first < 4 * load.groups; first += share) {
    uint64_t bytes = 0;
    for (uint64_t group = first; group < first + share; ++group) bytes += LatentBytes(load, group);
    most = std::max(most, bytes);
  }
  return load.ahead * most + LatentBytes(load, 0);
}

std::vector<Image8> PicturesOf(const Load& load, uint64_t group) {
  const auto bytes = static_cast<size_t>(load.picture_side * load.picture_side * 3);
  std::vector<Image8> pictures;
  for (uint32_t sample = 0; sample < kGroupSize; ++sample) {
    pictures.push_back({load.picture_side, load.picture_side, 3,
                        std::vector<uint8_t>(bytes, GreyOf(group, sample))});
  }
  return pictures;
}

double RewardOf(uint64_t group, uint32_t sample) { return GreyOf(group, sample) / 255.0; }

v1::Group MakeGroup(const Load& load, const std::string& worker, uint64_t epoch,
                    const v1::Lease& lease, const std::vector<double>& scores) {
  v1::Group group;
  group.set_worker_id(worker);
  group.set_group_id(lease.group_id());
  group.set_learner_step(lease.learner_step());
  group.set_lease_id(lease.lease_id());
  group.set_epoch(epoch);
  *group.mutable_prompt() = lease.prompt();
  const uint64_t latents = LatentsOf(load, lease.group_id());
  const std::vector<bool> window = WindowOf(load, lease.group_id());
  for (uint32_t sample = 0; sample < SamplesOf(load, lease.group_id()); ++sample) {
    v1::Trajectory& trajectory = *group.add_trajectories();
    trajectory.set_sample(sample);
    trajectory.set_schedule_id(kScheduleId);
    trajectory.set_reward(scores.at(sample));
    v1::Tensor& tensor = *trajectory.mutable_latents();
    tensor.set_dtype(v1::DTYPE_BF16);
    tensor.add_shape(static_cast<int64_t>(latents));
    for (const int64_t size : RulesOf(load).latent_shape) tensor.add_shape(size);
    tensor.set_data(Pattern(WordOf(lease.group_id(), sample), latents * OneLatent(load)));
    for (const bool sde : window) {
      trajectory.add_log_prob(-1);
      trajectory.add_sde(sde);
      trajectory.add_behaviour_version(0);
    }
  }
  return group;
}

absl::Status CheckContent(const Load& load, const v1::Group& group) {
  const uint64_t id = group.group_id();
  uint64_t bytes = 0;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    bytes += trajectory.latents().data().size();
    const uint32_t sample = trajectory.sample();
    if (!HasPattern(trajectory.latents().data(), WordOf(id, sample))) {
      return absl::DataLossError(absl::StrCat("group ", id, ": other latents, sample ", sample));
    }
    if (trajectory.reward() != RewardOf(id, sample)) {
      return absl::DataLossError(
          absl::StrCat("group ", id, ": sample ", sample, " has reward ", trajectory.reward()));
    }
  }
  if (bytes == LatentBytes(load, id)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("group ", id, ": ", bytes, " bytes of latents"));
}

}  // namespace oxbow::bench
